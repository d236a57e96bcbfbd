//! alone: what is free on the GPU is compared
// What cudaMemGetInfo says goes down by what is allocated and comes back with what is freed, and its errors are CUDA's. Hard: under us it tells another story, which
// must be as consistent.
#include "runtime.h"

int main(void) {
    size_t before, free_, total, first;
    OK(cudaMemGetInfo(&before, &first));
    void *at[4];
    for (int i = 0; i < 4; i++) {
        OK(cudaMalloc(&at[i], 2 * MIB));
        OK(cudaMemGetInfo(&free_, &total));
        say("total as before %d, less %d MiB free\n", total == first, (int)((before - free_) / MIB));
    }
    for (int i = 0; i < 4; i++) OK(cudaFree(at[i]));
    OK(cudaMemGetInfo(&free_, &total));
    say("all back %d, never more than all %d\n", free_ == before, free_ <= total);
    say("%016" PRIx64 "\n", train(1));
    say("no place %d %d\n", cudaMemGetInfo(NULL, &total), cudaMemGetInfo(&free_, NULL));
    say("last %d\n", cudaGetLastError());
    return 0;
}
