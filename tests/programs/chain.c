// Run with the interposer of next.c preloaded behind the shim: program, shim, interposer, genuine function; each once.
#include "check.h"
#include "cuda.h"
extern int between WEAK;
int main(void) {
    ARGS(args, 0);
    for (int i = 1; i <= 3; i++) {
        EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
        EQUAL(between, i);
        EQUAL(fake_calls("cudaLaunchKernel"), i);
        EQUAL(fake_calls("cuLaunchKernel"), i);
        EQUAL(counter(LAUNCHES), i);
    }
    return 0;
}
