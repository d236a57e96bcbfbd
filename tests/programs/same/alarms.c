// SIGALRM every millisecond while the program trains and waits, with SA_RESTART and without; and a signal that a thread waits for. Hard: signals to
// a process go to any thread that does not block them, so none of ours may be there to take one; and our own system calls are interrupted.
#include "runtime.h"
#include <sys/time.h>

static pthread_t threads[2];
static _Atomic int taken, elsewhere;

static void ring(int number) {
    (void)number;
    taken++;
    elsewhere += !pthread_equal(pthread_self(), threads[0]);
}

static void *wait_for(void *set) {
    int number;
    for (int i = 0; i < 3; i++) {
        NEED(sigwait(set, &number) == 0);
        NEED(number == SIGUSR1);
    }
    return NULL;
}

int main(void) {
    threads[0] = pthread_self();
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = ring, .sa_flags = restart ? SA_RESTART : 0};
        struct itimerval every = {{0, 1000}, {0, 1000}}, never = {0};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
        say("%016" PRIx64 "\n", train(1));
        say("%016" PRIx64 "\n", train(2));
        while (taken < 5) OK(cudaDeviceSynchronize());
        setitimer(ITIMER_REAL, &never, NULL);
        taken = 0;
    }
    // The first use of CUDA made whatever threads there are.
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    NEED(pthread_create(&threads[1], NULL, wait_for, &set) == 0);
    for (int i = 0; i < 3; i++) {
        kill(getpid(), SIGUSR1);
        say("%016" PRIx64 "\n", train(3));
        usleep(10000);
    }
    pthread_join(threads[1], NULL);
    say("taken elsewhere than in main: %d\n", elsewhere);
    return 0;
}
