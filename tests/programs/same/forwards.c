// Calls a function of a library that looks it up in another file of its own, under the same name. Hard: answered with ours, that look-up makes a circle.
#include "runtime.h"
#include <libgen.h>

int main(int count, char **words) {
    (void)count;
    char path[4096];
    snprintf(path, sizeof path, "%s/libcudnn_front.so", dirname(words[0]));
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    NEED(library);
    for (int round = 0; round < 3; round++) {
        int (*from_library)(void *, void *, void *), (*from_anywhere)(void *, void *, void *);
        *(void **)&from_library = dlsym(library, "cudnnBackendExecute");
        *(void **)&from_anywhere = dlsym(RTLD_DEFAULT, "cudnnBackendExecute");
        NEED(from_library && from_anywhere);
        say("nothing %d %d, something %d\n", from_library(NULL, NULL, NULL), from_anywhere(NULL, NULL, NULL), from_anywhere(&path, NULL, NULL));
        say("%016" PRIx64 "\n", train((float)round));
    }
    return 0;
}
