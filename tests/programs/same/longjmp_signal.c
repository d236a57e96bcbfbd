// Leaves signal handlers by siglongjmp, from between calls. Hard: our own note of being inside a call must not be what is jumped over, or all later calls
// would count as inner ones.
#include "runtime.h"
#include <setjmp.h>

static sigjmp_buf back;

static void leave(int number) { siglongjmp(back, number); }

int main(void) {
    struct sigaction action = {.sa_handler = leave};
    float *at;
    volatile int *volatile nowhere = NULL;
    sigaction(SIGUSR1, &action, NULL), sigaction(SIGSEGV, &action, NULL), sigaction(SIGFPE, &action, NULL);
    OK(cudaMalloc((void **)&at, 4 * MIB));
    for (volatile int i = 0; i < 6; i++) {
        int number = sigsetjmp(back, 1);
        if (number == 0) {
            fill(at, MIB, (float)i, NULL);
            if (i % 3 == 0) raise(SIGUSR1);
            if (i % 3 == 1) *nowhere = 1;
            raise(SIGFPE);
        }
        say("%d: signal %d, %016" PRIx64 "\n", i, number, on_device(at, MIB));
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        say("blocked %d %d\n", sigismember(&mask, SIGUSR1), sigismember(&mask, SIGSEGV));
    }
    OK(cudaFree(at));
    say("after %016" PRIx64 "\n", train(1));
    return 0;
}
