//! says: cannot be shared between processes by CUDA IPC
// Exports memory to other processes, which the device refuses, and goes on. Hard: what was made managed cannot be exported, so the refusal is said to be ours.
#include "runtime.h"

int main(void) {
    char handle[64];
    void *small, *large, *own;
    OK(cudaMalloc(&small, 4096));
    OK(cudaMalloc(&large, 4 * MIB));
    OK(cudaMallocManaged(&own, 4 * MIB, ATTACH_GLOBAL));
    say("small %d\n", cudaIpcGetMemHandle(handle, small));
    say("large %d\n", cudaIpcGetMemHandle(handle, large));
    say("large %d\n", cudaIpcGetMemHandle(handle, large));
    say("managed %d\n", cudaIpcGetMemHandle(handle, own));
    say("last %d\n", cudaGetLastError());
    say("last %d\n", cudaGetLastError());
    say("pool %d\n", cudaMallocAsync(&own, 4 * MIB, NULL));
    say("last %d\n", cudaGetLastError());
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
