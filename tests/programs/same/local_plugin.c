// A plugin opened locally, closed and opened again, in a program that knows nothing of CUDA. Hard: libraries of CUDA appear and disappear under
// us, in a scope that is not ours.
#include "common.h"

int main(void) {
    for (int i = 0; i < 3; i++) {
        void *plugin = dlopen("libworker.so", RTLD_LAZY | RTLD_LOCAL);
        NEED(plugin);
        uint64_t (*work)(int, int *) = (uint64_t (*)(int, int *))dlsym(plugin, "work");
        NEED(work);
        int helped;
        uint64_t found = work(i, &helped);
        say("%d: %016" PRIx64 " %d\n", i, found, helped);
        say("not everybody's: %d\n", dlsym(RTLD_DEFAULT, "work") == NULL);
        say("close %d\n", dlclose(plugin));
    }
    return 0;
}
