// A program that leaves a launch by longjmp loses nothing: the next launch counts. So does one whose thread ends in a launch,
// which unwinds its stack through us.
#include "check.h"
#include "cuda.h"
#include <pthread.h>
#include <setjmp.h>
static void *ends(void *p) {
    ARGS(args, p);
    fake_end("cuLaunchKernel");
    cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL);
    CHECK(!"came back");
    return NULL;
}
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
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, ends, p) && !pthread_join(t, NULL));
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(counter(LAUNCHES), 4);
    return 0;
}
