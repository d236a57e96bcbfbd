// A thread with hardly more stack than the emulated device's own calls need (40 KiB are too few for it) does everything. Hard: a library that needs more than
// the driver does ends the program.
#include "runtime.h"

static uint64_t found;

static void *run(void *unused) {
    found = train(1);
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    NEED(pthread_attr_setstacksize(&attributes, 56 << 10) == 0);
    NEED(pthread_create(&thread, &attributes, run, NULL) == 0);
    pthread_join(thread, NULL);
    say("%016" PRIx64 "\n", found);
    return 0;
}
