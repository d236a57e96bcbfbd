// Large device memory becomes managed memory in whole UM blocks, once, whichever door; small memory stays what it is.
#include "check.h"
#include "cuda.h"
#define BLOCK (2ull << 20)
int main(void) {
    void *p, *q, *zero = (void *)1;
    uint64_t d;
    size_t pitch;
    EQUAL(cudaMalloc(&p, (1 << 20) - 1), 0);
    EQUAL(fake_kind(p), 'd');
    EQUAL(counter(MANAGED), 0);
    EQUAL(counter(KEPT), 1);
    EQUAL(cudaMalloc(&zero, 0), 0);
    CHECK(zero == NULL);
    EQUAL(cudaMalloc(&q, 1 << 20), 0);
    EQUAL(fake_kind(q), 'm');
    EQUAL(fake_calls("cuMemAllocManaged"), 1);
    EQUAL(fake_calls("cuMemAlloc_v2"), 1);
    EQUAL(counter(MANAGED), 1);
    EQUAL(counter(MANAGED_BYTES), BLOCK);
    EQUAL((uint64_t)q % BLOCK, 0);
    EQUAL(cuMemAlloc_v2(&d, BLOCK + 1), 0);
    EQUAL(fake_kind((void *)d), 'm');
    EQUAL(counter(MANAGED_BYTES), 3 * BLOCK);
    EQUAL(cuMemFree_v2(d), 0);
    EQUAL(counter(MANAGED_BYTES), BLOCK);
    // Freed by the other door, refused first.
    fake_fail("cuMemFree_v2", 719);
    EQUAL(cudaFree(q), 719);
    EQUAL(counter(MANAGED_BYTES), BLOCK);
    EQUAL(cudaFree(q), 0);
    EQUAL(counter(MANAGED_BYTES), 0);
    EQUAL(cudaFree(p), 0);
    EQUAL(cudaFree(NULL), 0);
    EQUAL(cudaFree((void *)0x123), 1);
    EQUAL(cudaGetLastError(), 1);
    // Pitched and boxed.
    EQUAL(cudaMallocPitch(&p, &pitch, 1000, 2048), 0);
    EQUAL(pitch, 1024);
    EQUAL(fake_kind(p), 'm');
    EQUAL(counter(MANAGED_BYTES), BLOCK);
    EQUAL(cudaMallocPitch(&q, &pitch, 1000, 8), 0);
    EQUAL(fake_kind(q), 'd');
    pitched box = {NULL, 0, 0, 0};
    EQUAL(cudaMalloc3D(&box, (extent3){1000, 512, 8}), 0);
    EQUAL(fake_kind(box.ptr), 'm');
    EQUAL(box.pitch, 1024);
    EQUAL(box.xsize, 1000);
    EQUAL(box.ysize, 512);
    EQUAL(cuMemAllocPitch_v2(&d, &pitch, 4096, 1024, 16), 0);
    EQUAL(fake_kind((void *)d), 'm');
    EQUAL(cudaFree(p) | cudaFree(box.ptr) | cuMemFree_v2(d), 0);
    EQUAL(counter(MANAGED_BYTES), 0);
    // The program's own managed memory is watched, and counted once though it passes two doors.
    EQUAL(cudaMallocManaged(&p, 3 << 20, 1), 0);
    EQUAL(counter(MANAGED_BYTES), 2 * BLOCK);
    EQUAL(cudaFree(p), 0);
    EQUAL(counter(MANAGED_BYTES), 0);
    // A driver that makes no managed memory leaves device memory, and one that has none left says so.
    fake_fail("cuMemAllocManaged", 201);
    fake_fail("cuMemAlloc_v2", 202);
    EQUAL(cudaMalloc(&p, 4 << 20), 202);
    EQUAL(cudaGetLastError(), 202);
    fake_fail("cuMemAllocManaged", 801);
    EQUAL(cudaMalloc(&p, 4 << 20), 0);
    EQUAL(fake_kind(p), 'd');
    EQUAL(cudaGetLastError(), 0);
    fake_fail("cuMemAllocManaged", 2);
    EQUAL(cudaMalloc(&q, 4 << 20), 2);
    EQUAL(cudaGetLastError(), 2);
    // While a stream is being captured, memory stays device memory.
    void *graph;
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    EQUAL(cudaMalloc(&p, 4 << 20), 0);
    EQUAL(fake_kind(p), 'd');
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    // What stays device memory says so, once; what cannot be exported, too.
    EQUAL(cudaMallocAsync(&p, 4 << 20, NULL), 0);
    EQUAL(cudaMallocAsync(&p, 4 << 20, NULL), 0);
    EQUAL(cuMemCreate(&d, 4 << 20, NULL, 0), 0);
    EQUAL(cudaMalloc(&p, 4 << 20), 0);
    char handle[64];
    EQUAL(cudaIpcGetMemHandle(handle, p), 1);
    return 0;
}
