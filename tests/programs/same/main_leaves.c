// The main thread ends by pthread_exit, and another one goes on, the last of the program. Hard: a process whose first thread is a zombie, and whose end is
// that of its last thread: ours must not keep it alive.
#include "runtime.h"

static pthread_t first;

static void *run(void *unused) {
    pthread_join(first, NULL);
    say("alone %016" PRIx64 "\n", train(2));
    // The end of the program would be that of its last thread, were there none of CUDA's own.
    exit(12);
    return unused;
}

int main(void) {
    pthread_t second;
    first = pthread_self();
    say("together %016" PRIx64 "\n", train(1));
    NEED(pthread_create(&second, NULL, run, NULL) == 0);
    pthread_exit(NULL);
}
