// Awake, each launch is followed by a write of its number into its stream's word, and waits for its device's gate to be
// open, unless the engine says that it lacks nothing; dormant and captured ones do not. With an argument: there is no gate.
#include "check.h"
#include "cuda.h"
// Whether the page at `at` is shared memory: private pages are copied when a process that forked writes to them, and the GPU
// would go on reading the old ones.
static int shared_page(uint64_t at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], mode[5];
    uint64_t from, to;
    int found = 0;
    while (!found && fgets(line, sizeof line, maps))
        found = sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, mode) == 3 && from <= at && at < to && !strcmp(mode, "rw-s");
    fclose(maps);
    return found;
}
int main(int argc, char **argv) {
    (void)argv;
    int gate = argc == 1;
    void *p, *graph;
    EQUAL(cudaMalloc(&p, 4 << 20), 0);
    ARGS(args, p);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuStreamWriteValue64_v2"), 0);
    EQUAL(fake_calls("cuStreamWaitValue64_v2"), 0);
    ring()[RING_MODE] = 1;
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuStreamWriteValue64_v2"), 1);
    EQUAL(fake_progress(0), 2);
    uint64_t word = fake_progress(1);
    EQUAL(*(volatile uint64_t *)word, 2);
    CHECK(shared_page(word));
    EQUAL(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (void *)0x5000, args, NULL), 0);
    EQUAL(fake_progress(0), 3);
    CHECK(fake_progress(1) != word);
    EQUAL(fake_calls("cuStreamWaitValue64_v2"), 2 * gate);
    EQUAL(fake_wait(0), 3 * gate);
    // Behind the 512 progress words, that of device 0.
    if (gate) EQUAL(fake_wait(1) & -4096ull, (word & -4096ull) + 4096);
    // The same stream, the same word; the legacy stream has two handles.
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, (void *)1), 0);
    EQUAL(fake_progress(1), word);
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    fake_fail("cuLaunchKernel", 1);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 1);
    EQUAL(fake_calls("cuStreamWriteValue64_v2"), 3);
    EQUAL(counter(PROGRESS_WRITES), 3);
    // The refused launch had its wait before anybody knew.
    EQUAL(fake_calls("cuStreamWaitValue64_v2"), 4 * gate);
    EQUAL(counter(GATE_WAITS), 4 * gate);
    // Launches that lack nothing, as far as the engine foresees, do not wait.
    uint64_t last = fake_progress(0);
    page()[PAGE_CLEAR] = last + 2;
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_progress(0), last + 1);
    EQUAL(fake_calls("cuStreamWaitValue64_v2"), 4 * gate);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_wait(0), (last + 2) * gate);
    EQUAL(fake_calls("cuStreamWaitValue64_v2"), 5 * gate);
    // A kernel's name and layout are asked for once, until a module goes.
    int asked = fake_calls("cuFuncGetName");
    for (int i = 0; i < 100; i++) EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuFuncGetName"), asked);
    EQUAL(cuModuleUnload((void *)3), 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuFuncGetName"), asked + 1);
    EQUAL(counter(WITHOUT_LAYOUT), 0);
    // One whose layout the driver does not say is launched and counted all the same.
    EQUAL(cuLaunchKernel((void *)0x66, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), 0);
    EQUAL(counter(WITHOUT_LAYOUT), 1);
    // More pointers than a record holds: the rest is counted.
    static uint64_t many[1100];
    void *one[] = {many};
    for (int i = 0; i < 1100; i++) many[i] = (uint64_t)p + 512 * i;
    EQUAL(cuLaunchKernel((void *)0x77, 1, 1, 1, 1, 1, 1, 0, NULL, one, NULL), 0);
    EQUAL(counter(LEFT_OUT), 1100 - 1024);
    // More streams than progress words: they launch without.
    uint64_t writes = counter(PROGRESS_WRITES);
    for (uint64_t i = 0; i < 600; i++) EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, (void *)(0x100000 + i * 64)), 0);
    EQUAL(counter(PROGRESS_WRITES) - writes + counter(NO_PROGRESS), 600);
    EQUAL(counter(NO_PROGRESS), 600 + 2 - 512);
    // A full ring, which nobody reads here, loses records and no launch.
    volatile uint64_t *dropped = ring() + RING_DROPPED, done = counter(LAUNCHES), calls = fake_calls("cuLaunchKernel");
    uint64_t more = 0;
    while (*dropped < 10 && more < 100000) {
        EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
        more++;
    }
    EQUAL(*dropped, 10);
    EQUAL(counter(LAUNCHES), done + more);
    EQUAL(fake_calls("cuLaunchKernel"), calls + more);
    // A driver that cannot write, or cannot wait, is asked once more and never again.
    fake_fail("cuStreamWriteValue64_v2", 801);
    calls = fake_calls("cuStreamWriteValue64_v2");
    for (int i = 0; i < 3; i++) EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuStreamWriteValue64_v2"), calls + 1);
    if (gate) {
        fake_fail("cuStreamWaitValue64_v2", 801);
        int waits = fake_calls("cuStreamWaitValue64_v2");
        for (int i = 0; i < 3; i++) EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
        EQUAL(fake_calls("cuStreamWaitValue64_v2"), waits + 1);
    }
    return 0;
}
