// Run with a GPU of 64 MiB and 96 MiB of host memory allowed: what fits into neither is CUDA's out-of-memory, and room comes back.
#include "check.h"
#include "cuda.h"
int main(void) {
    void *p[16];
    size_t free_bytes, total, by_driver;
    char props[1024];
    for (int i = 0; i < 12; i++) EQUAL(cudaMalloc(&p[i], 8 << 20), 0);
    EQUAL(cudaMalloc(&p[12], 8 << 20), 2);
    EQUAL(counter(REFUSED), 1);
    EQUAL(cudaGetLastError(), 2);
    // One story at every query.
    EQUAL(cudaMemGetInfo(&free_bytes, &total), 0);
    EQUAL(total, 96 << 20);
    EQUAL(free_bytes, 0);
    EQUAL(cudaFree(p[0]), 0);
    EQUAL(cuMemGetInfo_v2(&free_bytes, &by_driver), 0);
    EQUAL(by_driver, total);
    EQUAL(free_bytes, 8 << 20);
    EQUAL(cuDeviceTotalMem_v2(&by_driver, 0), 0);
    EQUAL(by_driver, total);
    EQUAL(cudaGetDeviceProperties(props, 0), 0);
    EQUAL(*(size_t *)(props + 288), total);
    EQUAL(cudaMalloc(&p[0], 8 << 20), 0);
    // Small memory is not ours to refuse.
    EQUAL(cudaMalloc(&p[13], 4096), 0);
    return 0;
}
