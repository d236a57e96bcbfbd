// A program that leaves a launch by longjmp loses nothing: the next launch counts.
#include "check.h"
#include "cuda.h"
#include <setjmp.h>
int main(void) {
    static jmp_buf back;
    void *p;
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    ARGS(args, p);
    for (int i = 0; i < 3; i++) {
        fake_jump("cuLaunchKernel", &back);
        if (!setjmp(back)) {
            cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL);
            CHECK(!"came back");
        }
        EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
        EQUAL(counter(LAUNCHES), i + 1);
    }
    return 0;
}
