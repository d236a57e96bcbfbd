// A program that used CUDA starts itself by vfork and exec, which uses it, too. Hard: until exec the child has the parent's memory, and afterwards
// the preload, and must find no descriptor of ours.
#include "runtime.h"

int main(int argc, char **argv) {
    if (argc == 2) {
        int open_from = 3;
        for (int fd = 3; fd < 256; fd++) open_from += fcntl(fd, F_GETFD) >= 0;
        say("descriptors beyond the first three: %d\n", open_from - 3);
        say("again %016" PRIx64 "\n", train(2));
        return 7;
    }
    say("first %016" PRIx64 "\n", train(1));
    for (int i = 0; i < 2; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl(argv[0], argv[0], "again", (char *)NULL);
            _exit(1);
        }
        say("ended %d\n", ended(child));
    }
    say("after %016" PRIx64 "\n", train(3));
    return 0;
}
