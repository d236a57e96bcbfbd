// Functions of the program that run in a stream, and ask CUDA what needs no wait. Hard: they run on a thread that nobody made for us, while another may be
// inside a call.
#include "runtime.h"

static char results[16][64];
static int count;
static _Atomic int counted;

static void host_function(void *data) {
    int devices = 0, asked = cudaGetDeviceCount(&devices), last = cudaGetLastError();
    snprintf(results[count++], sizeof results[0], "function %d: %d %d devices, last %d", (int)(intptr_t)data, asked, devices, last);
    counted++;
}

static void callback(stream_t stream, int status, void *data) {
    (void)stream;
    int device = -1, asked = cudaGetDevice(&device), seen = cudaPeekAtLastError();
    snprintf(results[count++], sizeof results[0], "callback %d: status %d, %d device %d, seen %d", *(int *)data, status, asked, device, seen);
    counted++;
}

int main(void) {
    stream_t stream;
    float *at[3];
    OK(cudaStreamCreate(&stream));
    for (int i = 0; i < 3; i++) {
        OK(cudaMalloc((void **)&at[i], 4 * MIB));
        fill(at[i], MIB, (float)i, stream);
        OK(cudaLaunchHostFunc(stream, host_function, (void *)(intptr_t)i));
        axpy(at[i], at[0], MIB, 0.5f, stream);
        OK(cudaStreamAddCallback(stream, callback, &i, 0));
        OK(cudaStreamSynchronize(stream));
    }
    say("ran %d\n", counted);
    for (int i = 0; i < count; i++) say("%s\n", results[i]);
    for (int i = 0; i < 3; i++) say("%016" PRIx64 "\n", on_device(at[i], MIB));
    say("last %d\n", cudaGetLastError());
    say("no function %d\n", cudaLaunchHostFunc(stream, NULL, NULL));
    OK(cudaStreamDestroy(stream));
    return 0;
}
