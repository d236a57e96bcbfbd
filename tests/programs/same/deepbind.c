// A plugin opened with RTLD_DEEPBIND allocates, and the program uses and frees its memory. Hard: such a plugin binds to CUDA's own library past every
// preload, so a pointer is made unseen and freed seen, or the other way round.
#include "runtime.h"

int helper(void) { return 42; }

int main(void) {
    void *plugin = dlopen("libworker.so", RTLD_NOW | RTLD_DEEPBIND | RTLD_LOCAL);
    NEED(plugin);
    uint64_t (*work)(int, int *) = (uint64_t (*)(int, int *))dlsym(plugin, "work");
    int (*their_malloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(plugin, "cudaMalloc");
    NEED(work && their_malloc);
    int helped, helped_again;
    uint64_t first = work(1, &helped), second = train(2), third = work(3, &helped_again);
    say("%016" PRIx64 " %016" PRIx64 " %016" PRIx64 ", helped by %d %d, not %d\n", first, second, third, helped, helped_again, helper());
    float *theirs, *ours;
    OK(their_malloc((void **)&theirs, 4 * MIB));
    OK(cudaMalloc((void **)&ours, 4 * MIB));
    fill(theirs, MIB, 1, NULL), fill(ours, MIB, 2, NULL);
    axpy(ours, theirs, MIB, 2, NULL);
    say("both %016" PRIx64 "\n", on_device(ours, MIB));
    OK(cudaFree(theirs));
    OK(cudaFree(ours));
    say("close %d\n", dlclose(plugin));
    say("after %016" PRIx64 "\n", train(4));
    return 0;
}
