// Sets our own variables once CUDA runs, to sense and to nonsense. Hard: they are read once, and a program that sets them for its children says nothing about itself.
#include "runtime.h"

int main(int argc, char **argv) {
    if (argc == 2) {
        void *p;
        say("child: malloc %d\n", cudaMalloc(&p, 2 * MIB));
        return 18;
    }
    void *p;
    OK(cudaMalloc(&p, 4 * MIB));
    setenv("DEEPUM_POLICY", "nonsense", 1);
    setenv("DEEPUM_GPU_BUDGET", "-1", 1);
    setenv("DEEPUM_NO_SUCH_THING", "1", 1);
    say("nonsense %016" PRIx64 "\n", train(1));
    setenv("DEEPUM", "0", 1);
    say("off %016" PRIx64 "\n", train(3));
    OK(cudaFree(p));
    // And a child that is told to be without us says nothing about the nonsense.
    pid_t child = fork();
    if (child == 0) {
        execl(argv[0], argv[0], "child", (char *)NULL);
        _exit(1);
    }
    say("ended %d\n", ended(child));
    return 0;
}
