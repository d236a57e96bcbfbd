// Memory of NCCL stays device memory; the program's own is managed.
#include "check.h"
#include "cuda.h"
int nccl_alloc(void **, size_t);
int main(void) {
    void *p, *q;
    EQUAL(nccl_alloc(&p, 8 << 20), 0);
    EQUAL(fake_kind(p), 'd');
    EQUAL(cudaMalloc(&q, 8 << 20), 0);
    EQUAL(fake_kind(q), 'm');
    return 0;
}
