// Forks before CUDA, and parent and two children use it at once. Hard: each must begin a life of its own, with nothing shared.
#include "runtime.h"

int main(void) {
    int out[2], go[2];
    NEED(pipe(out) == 0 && pipe(go) == 0);
    pid_t child[2];
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i]) continue;
        char byte;
        NEED(read(go[0], &byte, 1) == 1);
        uint64_t found[2] = {(uint64_t)i, train((float)i + 1)};
        NEED(write(out[1], found, sizeof found) == sizeof found);
        exit(3 + i);
    }
    NEED(write(go[1], "..", 2) == 2);
    say("parent %016" PRIx64 "\n", train(9));
    uint64_t theirs[2] = {0}, found[2];
    for (int i = 0; i < 2; i++) {
        NEED(read(out[0], found, sizeof found) == sizeof found);
        theirs[found[0]] = found[1];
    }
    for (int i = 0; i < 2; i++) {
        say("child %016" PRIx64 "\n", theirs[i]);
        say("ended %d\n", ended(child[i]));
    }
    return 0;
}
