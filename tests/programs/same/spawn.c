// A program that used CUDA starts itself by posix_spawn and `system`, with other descriptors, signal mask and no preload of its own doing. Hard: what is
// set for a child must reach it.
#include "runtime.h"
#include <spawn.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc == 2) {
        sigset_t mask;
        NEED(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
        say("%s %016" PRIx64 ", SIGUSR2 blocked %d\n", argv[1], train(2), sigismember(&mask, SIGUSR2));
        return 8;
    }
    say("first %016" PRIx64 "\n", train(1));
    int out[2];
    NEED(pipe(out) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t mask;
    sigemptyset(&mask), sigaddset(&mask, SIGUSR2);
    NEED(posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
    NEED(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO) == 0);
    NEED(posix_spawn_file_actions_addclose(&actions, out[0]) == 0);
    NEED(posix_spawnattr_setsigmask(&attributes, &mask) == 0 && posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0);
    pid_t child;
    char *words[] = {argv[0], "spawned", NULL}, heard[200];
    NEED(posix_spawn(&child, argv[0], &actions, &attributes, words, environ) == 0);
    close(out[1]);
    ssize_t n = 0, more;
    while ((more = read(out[0], heard + n, sizeof heard - 1 - (size_t)n)) > 0) n += more;
    heard[n] = 0;
    say("heard: %s", heard);
    say("ended %d\n", ended(child));
    char command[4200];
    snprintf(command, sizeof command, "'%s' by-system", argv[0]);
    say("system %d\n", WEXITSTATUS(system(command)));
    say("nobody left to wait for: %d\n", waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    return 0;
}
