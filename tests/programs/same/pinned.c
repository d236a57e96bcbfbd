// Host memory that CUDA made, that the program registered, mapped and not, with copies to and from it. Hard: addresses that the GPU knows and that are
// none of ours.
#include "runtime.h"
#include <sys/mman.h>

int main(void) {
    enum { N = 4 * MIB };
    float *on_gpu[3];
    char *memory[4];
    for (int i = 0; i < 3; i++) OK(cudaMalloc((void **)&on_gpu[i], N));
    OK(cudaMallocHost((void **)&memory[0], N));
    OK(cudaHostAlloc((void **)&memory[1], N, 3)); // portable and mapped
    memory[2] = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cudaHostRegister(memory[2], N, 2));
    memory[3] = malloc(N);
    say("registered again %d\n", cudaHostRegister(memory[2], N, 2));
    say("that error %d\n", cudaGetLastError());
    for (int i = 0; i < 4; i++) {
        void *mapped = NULL;
        unsigned flags = 99;
        int status = cudaHostGetDevicePointer(&mapped, memory[i], 0), asked = cudaHostGetFlags(&flags, memory[i]);
        say("%d: mapped %d %d, flags %d %u\n", i, status, mapped == memory[i], asked, flags);
        attributes what = {0};
        status = cudaPointerGetAttributes(&what, memory[i] + 100);
        say("is %d: kind %d, device %d, %d %d\n", status, what.kind, what.device, what.on_host == memory[i] + 100, what.on_device == memory[i] + 100);
        cudaGetLastError();
        for (int j = 0; j < N; j++) memory[i][j] = (char)(i + j * 3);
        for (int j = 0; j < 3; j++) OK(cudaMemcpyAsync(on_gpu[j], memory[i], N, j == 2 ? BY_ADDRESS : HOST_TO_DEVICE, NULL));
        for (int j = 0; j < 3; j++) scale(on_gpu[j], MIB / 8, 2, NULL);
        OK(cudaMemcpyAsync(memory[i], on_gpu[i % 3], N, DEVICE_TO_HOST, NULL));
        OK(cudaDeviceSynchronize());
        say("%016" PRIx64 "\n", digest(memory[i], N));
    }
    OK(cudaFreeHost(memory[0]));
    OK(cudaFreeHost(memory[1]));
    OK(cudaHostUnregister(memory[2]));
    munmap(memory[2], N);
    free(memory[3]);
    for (int i = 0; i < 3; i++) OK(cudaFree(on_gpu[i]));
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
