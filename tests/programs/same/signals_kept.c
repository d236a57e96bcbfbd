// Every signal has the disposition and the mask that the program gave it, before, while and after CUDA is used. Hard: a library that catches or
// blocks a signal for a moment must put everything back.
#include "runtime.h"

static void handler(int number) { (void)number; }

static uint64_t state(void) {
    uint64_t all[65] = {0};
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action)) continue;
        uint64_t how = action.sa_handler == SIG_DFL ? 1 : action.sa_handler == SIG_IGN ? 2 : action.sa_handler == handler ? 3 : 4;
        all[number] = how | (uint64_t)(unsigned)action.sa_flags << 8 | (uint64_t)sigismember(&mask, number) << 4;
    }
    stack_t alternative;
    NEED(sigaltstack(NULL, &alternative) == 0);
    all[0] = (uint64_t)alternative.ss_flags;
    return digest(all, sizeof all);
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL), sigaction(SIGSEGV, &action, NULL);
    signal(SIGPIPE, SIG_DFL), signal(SIGCHLD, SIG_IGN);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGTERM), sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    say("before %016" PRIx64 "\n", state());
    void *p;
    OK(cudaMalloc(&p, 4 * MIB));
    say("begun %016" PRIx64 "\n", state());
    raise(SIGTERM), raise(SIGUSR2);
    say("%016" PRIx64 "\n", train(1));
    say("after %016" PRIx64 "\n", state());
    sigset_t pending;
    sigpending(&pending);
    say("pending %d %d %d\n", sigismember(&pending, SIGTERM), sigismember(&pending, SIGUSR2), sigismember(&pending, SIGPIPE));
    OK(cudaFree(p));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return 0;
}
