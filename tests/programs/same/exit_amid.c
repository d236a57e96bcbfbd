// One thread calls exit while others launch and allocate, and a destructor comes last. Hard: our own state must outlive everybody's last call.
#include "runtime.h"

static _Atomic int launched;

static void *run(void *at) {
    for (unsigned i = 0;; i++) {
        // What is refused is refused because the program ends.
        void *p;
        if (cudaMemsetAsync(at, (int)i, 64 * 1024, NULL)) break;
        if (cudaMalloc(&p, 2 * MIB) == 0) cudaFree(p);
        launched++;
    }
    return NULL;
}

static void *leave(void *unused) {
    while (launched < 200) usleep(100);
    say("leaving\n");
    exit(11);
    return unused;
}

static void at_end(void) { say("at the end\n"); }
__attribute__((destructor)) static void last(void) { say("last\n"); }

int main(void) {
    void *at;
    pthread_t thread;
    atexit(at_end);
    OK(cudaMalloc(&at, 4 * MIB));
    for (int i = 0; i < 3; i++) NEED(pthread_create(&thread, NULL, run, at) == 0);
    NEED(pthread_create(&thread, NULL, leave, NULL) == 0);
    pthread_join(thread, NULL);
    return 0;
}
