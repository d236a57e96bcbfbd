// The program ends while other threads launch: destructors and exit handlers run, nobody crashes, hangs or complains.
#include "check.h"
#include "cuda.h"
#include <pthread.h>
static void *work(void *n) {
    ARGS(args, n);
    while (args[0]) cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL);
    return NULL;
}
static void late(void) {
    ARGS(args, 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
}
int main(void) {
    pthread_t t;
    void *p;
    atexit(late);
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&t, NULL, work, p));
    while (fake_calls("cuLaunchKernel") < 1000) usleep(100);
    exit(0);
}
