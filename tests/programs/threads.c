// Eight threads launch and allocate at once; every launch is counted once and waits once, every allocation comes and goes.
#include "check.h"
#include "cuda.h"
#include <pthread.h>
enum { THREADS = 8, ROUNDS = 2000 };
static void *work(void *n) {
    void *p;
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 100 == 0) {
            EQUAL(cudaMalloc(&p, 2 << 20), 0);
            EQUAL(fake_kind(p), 'm');
        }
        ARGS(args, p);
        EQUAL(cudaLaunchKernel((void *)(0x51 + (uintptr_t)n), ONE, ONE, args, 0, n), 0);
        if (i % 100 == 99) EQUAL(cudaFree(p), 0);
    }
    return NULL;
}
int main(void) {
    pthread_t t[THREADS];
    ARGS(args, 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    ring()[RING_MODE] = 1;
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, work, (void *)(0x9000 + i)));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    EQUAL(counter(LAUNCHES), THREADS * ROUNDS + 1);
    EQUAL(fake_calls("cuLaunchKernel"), THREADS * ROUNDS + 1);
    EQUAL(ring()[RING_ISSUED], THREADS * ROUNDS + 1);
    EQUAL(counter(GATE_WAITS), THREADS * ROUNDS);
    EQUAL(counter(MANAGED_BYTES), 0);
    return 0;
}
