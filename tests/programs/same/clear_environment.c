//! forgets: a child that has no variables of ours has an engine, whatever they said
// Clears its environment before CUDA starts, in a child, and after it started; and moves it. Hard: what we are told comes from there, and pointers into it
// would be stale.
#include "runtime.h"

extern char **environ;

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        // The emulated device needs to be told which it is; everything else goes, our own variables, too.
        char *device = strdup(getenv("DEEPUM_EMU"));
        clearenv();
        setenv("DEEPUM_EMU", device, 1);
        memset(device, 'x', strlen(device));
        say("child %016" PRIx64 "\n", train(1));
        int n = 0;
        while (environ[n]) n++;
        say("variables %d\n", n);
        exit(17);
    }
    say("ended %d\n", ended(child));
    say("before %016" PRIx64 "\n", train(2));
    char *own[] = {strdup("ONE=1"), NULL};
    environ = own;
    say("moved %016" PRIx64 "\n", train(3));
    clearenv();
    say("cleared %016" PRIx64 "\n", train(4));
    environ = NULL;
    say("none %016" PRIx64 "\n", train(5));
    return 0;
}
