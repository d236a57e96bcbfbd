//! preload: libbelow.so
// Beside us there are interposers: one preloaded behind us, and the program's own functions in front of us. Hard: each must see every call of the
// program once, and RTLD_NEXT must lead from one to the next.
#include "runtime.h"

static int in_front;
#define NEXT(name) ((int (*)())dlsym(RTLD_NEXT, #name))
int cudaMalloc(void **at, size_t bytes) { return in_front++, NEXT(cudaMalloc)(at, bytes); }
int cudaFree(void *at) { return in_front++, NEXT(cudaFree)(at); }

int main(void) {
    int (*behind)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "below_counted");
    NEED(behind);
    void *at[3];
    for (int i = 0; i < 3; i++) OK(cudaMalloc(&at[i], 4 * MIB));
    for (int i = 0; i < 3; i++) OK(cudaMemset(at[i], i, 4 * MIB));
    say("%016" PRIx64 "\n", on_device(at[1], MIB));
    for (int i = 0; i < 3; i++) OK(cudaFree(at[i]));
    say("in front %d, behind %d %d %d\n", in_front, behind(0), behind(1), behind(2));
    say("%016" PRIx64 "\n", train(1));
    say("in front %d, behind %d %d %d\n", in_front, behind(0), behind(1), behind(2));
    return 0;
}
