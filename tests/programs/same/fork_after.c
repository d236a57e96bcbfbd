// Forks after CUDA; children try to use it, and end by _exit, by exit with handlers, and by a signal. Hard: our threads are not in the child, our
// locks and handlers are.
#include "runtime.h"

static float *kept;

static void at_end(void) {
    say("at the end: free is %d\n", cudaFree(kept));
}

int main(void) {
    OK(cudaMalloc((void **)&kept, 4 * MIB));
    fill(kept, MIB, 5, NULL);
    atexit(at_end);
    for (int how = 0; how < 3; how++) {
        pid_t child = fork();
        if (child == 0) {
            void *p;
            say("malloc %d\n", cudaMalloc(&p, 4 * MIB));
            say("memset %d\n", cudaMemset(kept, 0, 64));
            say("synchronize %d\n", cudaDeviceSynchronize());
            say("last error %d\n", cudaGetLastError());
            if (how == 0) _exit(4);
            if (how == 1) exit(5);
            raise(SIGTERM);
        }
        say("ended %d\n", ended(child));
        say("kept %016" PRIx64 "\n", on_device(kept, MIB));
    }
    say("parent %016" PRIx64 "\n", train(2));
    return 6;
}
