// errno is the program's: no hook changes it, not the first one either, which reads files and looks up symbols.
#include "check.h"
#include "cuda.h"
int main(void) {
    void *p;
    errno = 77;
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    EQUAL(errno, 77);
    ARGS(args, p);
    ring()[RING_MODE] = 1;
    errno = 78;
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(errno, 78);
    EQUAL(cudaFree(p), 0);
    EQUAL(errno, 78);
    return 0;
}
