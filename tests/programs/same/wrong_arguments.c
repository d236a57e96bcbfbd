// Wrong arguments to many functions of the runtime, with what each does to the last error. Hard: calls of ours in between may fail, too, and their errors
// would be the program's next ones.
#include "runtime.h"

// What the call gave, what is then seen without taking it, what is taken, and what is left; also behind a good call.
#define WRONG(call)                                                             \
    do {                                                                        \
        int status = (call), seen = cudaPeekAtLastError(), twice = cudaPeekAtLastError(); \
        int good = cudaGetDevice(&device), after = cudaPeekAtLastError();       \
        int taken = cudaGetLastError(), left = cudaGetLastError();              \
        say("%s: %d; %d %d; %d %d; %d %d\n", #call, status, seen, twice, good, after, taken, left); \
    } while (0)

int main(void) {
    int device, value;
    char host[64] = {0};
    void *p, *out;
    size_t pitch;
    stream_t stream;
    event_t event;
    WRONG(cudaMalloc(NULL, 4096));
    OK(cudaMalloc(&p, 4 * MIB));
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&event));
    char *bad = (char *)0x123456789000;
    WRONG(cudaMalloc(NULL, 64));
    WRONG(cudaMalloc(&out, 0));
    WRONG(cudaMallocManaged(&out, 0, 1));
    WRONG(cudaMallocManaged(&out, 4096, 77));
    WRONG(cudaMallocManaged(NULL, 4096, 1));
    WRONG(cudaMallocPitch(NULL, &pitch, 4096, 2));
    WRONG(cudaMallocPitch(&out, NULL, 4096, 2));
    WRONG(cudaMalloc3D(NULL, (extent3){4096, 2, 1}));
    WRONG(cudaFree(bad));
    WRONG(cudaFree((char *)p + 256));
    WRONG(cudaFree(host));
    WRONG(cudaFree(NULL));
    WRONG(cudaFreeHost(p));
    WRONG(cudaFreeHost(host));
    WRONG(cudaMemcpy(p, host, 64, 9));
    WRONG(cudaMemcpy(NULL, host, 64, HOST_TO_DEVICE));
    WRONG(cudaMemcpy(p, host, 64, DEVICE_TO_HOST));
    WRONG(cudaMemcpy(p, host, (size_t)-1, HOST_TO_DEVICE));
    WRONG(cudaMemcpy((char *)p + 4 * MIB - 8, host, 64, HOST_TO_DEVICE));
    WRONG(cudaMemcpy2D(p, 16, host, 32, 32, 2, HOST_TO_DEVICE));
    WRONG(cudaMemset(NULL, 0, 64));
    WRONG(cudaMemset(bad, 0, 64));
    WRONG(cudaMemset(p, 0, 4 * MIB + 1));
    WRONG(cudaMemset(host, 0, 64));
    WRONG(cudaMemset2D(p, 16, 0, 32, 2));
    WRONG(cudaSetDevice(-1));
    WRONG(cudaSetDevice(99));
    WRONG(cudaGetDevice(NULL));
    WRONG(cudaGetDeviceCount(NULL));
    WRONG(cudaDeviceGetAttribute(&value, 99999, 0));
    WRONG(cudaDeviceGetAttribute(&value, 1, 99));
    WRONG(cudaMemGetInfo(NULL, NULL));
    WRONG(cudaPointerGetAttributes(NULL, p));
    WRONG(cudaStreamCreate(NULL));
    WRONG(cudaStreamCreateWithFlags(&stream, 99));
    WRONG(cudaEventCreateWithFlags(&event, 99));
    WRONG(cudaEventElapsedTime(NULL, event, event));
    WRONG(cudaHostAlloc(&out, 64, 0xffff));
    WRONG(cudaHostRegister(NULL, 64, 0));
    WRONG(cudaHostUnregister(host));
    WRONG(cudaHostGetDevicePointer(&out, host, 0));
    WRONG(cudaLaunchKernel(host, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
    void *none[6] = {&p, &p, &p, &p, &p, &p};
    WRONG(cudaLaunchKernel(kernel_symbol(FILL_KERNEL), (dim3){0, 1, 1}, (dim3){1, 1, 1}, none, 0, NULL));
    WRONG(cudaLaunchKernel(kernel_symbol(FILL_KERNEL), (dim3){1, 1, 1}, (dim3){4096, 1, 1}, none, 0, NULL));
    WRONG(cudaLaunchKernel(kernel_symbol(FILL_KERNEL), (dim3){1, 1, 1}, (dim3){1, 1, 1}, none, (size_t)1 << 30, NULL));
    WRONG(cudaIpcGetMemHandle((ipc_handle *)host, bad));
    // An error that was there before stays through good calls that make memory and launch.
    WRONG(cudaFree(bad));
    say("error %d\n", cudaFree(bad));
    for (int i = 0; i < 3; i++) OK(cudaMalloc(&out, 4 * MIB)), OK(cudaMemset(out, 1, 4 * MIB)), OK(cudaFree(out));
    say("kept %d\n", cudaGetLastError());
    say("after %016" PRIx64 "\n", train(1));
    return 0;
}
