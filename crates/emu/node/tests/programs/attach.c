/* A tool inside the program: attaches to nvidia-uvm as facts 2.8 say, on the emulated device, and watches
 * managed memory being prefetched, filled by a copy (which faults), migrated by ioctl, and evicted. Arguments: the driver
 * branch, and "tiny" if the device holds less than the 16 MiB used here. */
#include "emulated.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENTRIES = 16384 };
static unsigned char *ring;
static uint32_t *control;
static uint32_t get;
/* Sums over the entries read: faults, bytes by migration cause, replays. */
static uint64_t faults, bytes_by_cause[6], replays, other;
static unsigned char uuid_of_gpu[16];
static const unsigned char cpu[16] = { 0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73 };

static void drain(void)
{
    uint32_t put = __atomic_load_n(&control[3], __ATOMIC_ACQUIRE);
    for (; get != put; get = (get + 1) & (ENTRIES - 1)) {
        unsigned char *e = ring + 64 * get;
        uint64_t bytes;
        switch (e[0]) {
        case 3:
            CHECK(e[1] == 2 && e[3] == 1 && e[36] >= 1 && e[36] <= 2);
            faults++;
            break;
        case 2:
            CHECK(e[1] >= 1 && e[1] <= 5 && e[2] != e[3]);
            memcpy(&bytes, e + 16, 8);
            bytes_by_cause[e[1]] += bytes;
            break;
        case 4: replays++; break;
        default: other++;
        }
    }
    __atomic_store_n(&control[0], get, __ATOMIC_RELEASE);
    __atomic_store_n(&control[1], get, __ATOMIC_RELEASE);
}

/* UVM_MIGRATE; the driver's status. */
static unsigned migrate(int fd, uint64_t base, uint64_t len, const unsigned char *uuid)
{
    uint32_t p[24] = { 0 };
    memcpy(p, &base, 8);
    memcpy(p + 2, &len, 8);
    memcpy(p + 4, uuid, 16);
    p[13] = (uint32_t)-1;
    CHECK(ioctl(fd, 51, p) == 0);
    return p[18];
}

/* A pool of semaphores at these addresses; the driver's status, which lies behind as many rows as it has. */
static unsigned make_pool(int fd, void *at, int driver)
{
    static uint64_t p[1200];
    memset(p, 0, sizeof p);
    p[0] = (uint64_t)at;
    p[1] = 4096;
    CHECK(ioctl(fd, 68, p) == 0);
    return (unsigned)p[driver < 550 ? 147 : 1155];
}

/* A move that does not wait, whose word is written when it is over, in virtual time; and is told of when that is asked for. */
static void by_a_word(int space, uint64_t block, int driver)
{
    void (*await)(uint64_t) = (void (*)(uint64_t))dlsym(cuda, "deepumEmuAwait");
    uint64_t (*now)(void) = (uint64_t (*)(void))dlsym(cuda, "deepumEmuTime");
    volatile uint32_t *pool = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rw = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;
    CHECK(await && now && pool != MAP_FAILED);
    CHECK(mmap((void *)pool, 4096, rw, how, space, (off_t)pool) == MAP_FAILED && errno == EINVAL);
    CHECK(make_pool(space, (void *)pool, driver) == 0);
    CHECK(make_pool(space, (void *)pool, driver) == 0x68);
    CHECK(mmap((void *)pool, 4096, rw, how, space, (off_t)pool) == pool && pool[3] == 0);

    CHECK(migrate(space, block, 2 * MIB, cpu) == 0);
    drain();
    uint64_t before = now(), told = bytes_by_cause[1], len = 2 * MIB, word = (uint64_t)(pool + 3);
    uint32_t p[24] = { 0 };
    memcpy(p, &block, 8);
    memcpy(p + 2, &len, 8);
    memcpy(p + 4, uuid_of_gpu, 16);
    p[8] = 1;
    memcpy(p + 10, &word, 8);
    p[12] = 0x1234;
    CHECK(ioctl(space, 51, p) == 0 && p[18] == 0);
    uint64_t begun = now() - before;
    CHECK(pool[3] == 0);
    await(word);
    CHECK(pool[3] == 0x1234 && pool[2] == 0 && pool[4] == 0);
    /* The copy takes longer than the call. */
    CHECK(now() - before > 2 * begun);
    await(word);
    drain();
    CHECK(bytes_by_cause[1] == told);
    uint32_t flush[24] = { 7 };
    CHECK(ioctl(space, 67, flush) == 0 && flush[0] == 0);
    drain();
    CHECK(bytes_by_cause[1] == told + 2 * MIB);
}

int main(int argc, char **argv)
{
    int tiny = argc > 2;
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    uint64_t context = 0, managed = 0;
    int device = 0;
    CU(cuInit, 0, 0, 0, 0, 0);
    CU(cuDeviceGet, &device, 0, 0, 0, 0);
    CU(cuDeviceGetUuid, uuid_of_gpu, 0, 0, 0, 0);
    CU(cuDevicePrimaryCtxRetain, &context, 0, 0, 0, 0);
    CU(cuCtxSetCurrent, context, 0, 0, 0, 0);

    char version[32] = { 0 };
    int fd = open("/sys/module/nvidia/version", O_RDONLY);
    CHECK(fd >= 0 && read(fd, version, 31) > 3 && strncmp(version, argv[1], 3) == 0);

    int tools = open("/dev/nvidia-uvm-tools", O_RDWR | O_CLOEXEC);
    CHECK(tools >= 0);
    int memfd = memfd_create("ring", MFD_CLOEXEC);
    CHECK(ftruncate(memfd, 64 * ENTRIES + 4096) == 0);
    ring = mmap(0, 64 * ENTRIES + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    CHECK(ring != MAP_FAILED);
    control = (uint32_t *)(ring + 64 * ENTRIES);

    /* Every link to /dev/nvidia-uvm, until one is the VA space. */
    int space = -1, links = 0;
    DIR *fds = opendir("/proc/self/fd");
    for (struct dirent *d; (d = readdir(fds));) {
        char path[300], link[64];
        snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
        ssize_t n = readlink(path, link, sizeof link);
        if (n != 15 || memcmp(link, "/dev/nvidia-uvm", 15))
            continue;
        links++;
        uint32_t p[24] = { 0 };
        uint64_t ring_at = (uint64_t)ring, control_at = (uint64_t)control, entries = ENTRIES;
        memcpy(p, &ring_at, 8);
        memcpy(p + 2, &entries, 8);
        memcpy(p + 4, &control_at, 8);
        p[10] = 1;
        p[11] = (uint32_t)atoi(d->d_name);
        p[12] = p[13] = 1;
        CHECK(ioctl(tools, 56, p) == 0);
        unsigned status = p[12] != 1 ? p[12] : p[13];
        if (status == 0)
            space = atoi(d->d_name);
    }
    CHECK(links == 2 && space >= 0);
    uint32_t threshold[24] = { 1 };
    CHECK(ioctl(tools, 57, threshold) == 0 && threshold[1] == 0);
    uint32_t mask[24] = { 0x7ffe };
    CHECK(ioctl(tools, 58, mask) == 0 && mask[2] == 0);
    struct pollfd p = { .fd = tools, .events = POLLIN };
    CHECK(poll(&p, 1, 0) == 0);

    /* A memset on the device touches 16 MiB first: faults, no transfers but evictions. */
    CU(cuMemAllocManaged, &managed, 16 * MIB, 1, 0, 0);
    CU(cuMemsetD8_v2, managed, 7, 16 * MIB, 0, 0);
    CU(cuCtxSynchronize, 0, 0, 0, 0, 0);
    CHECK(poll(&p, 1, 0) == 1);
    drain();
    CHECK(poll(&p, 1, 0) == 0);
    /* Three batches of 256 entries bring a block in (tree prefetcher), and there are eight; on a device for four blocks the
     * first four leave again. Replays and copies are reported when something makes the driver look. */
    CHECK(faults == 24 * 256 && replays == 0 && other == 0);
    for (int cause = 1; cause < 6; cause++)
        CHECK(bytes_by_cause[cause] == 0);

    /* A synchronous migrate reports its copy before it returns: out, and in again. */
    CHECK(migrate(space, managed + 14 * MIB, 2 * MIB, cpu) == 0);
    drain();
    CHECK(bytes_by_cause[1] == 2 * MIB && bytes_by_cause[4] == (tiny ? 8 * MIB : 0) && replays == 24);
    CHECK(migrate(space, managed + 14 * MIB, 2 * MIB, uuid_of_gpu) == 0);
    drain();
    CHECK(bytes_by_cause[1] == 4 * MIB && bytes_by_cause[4] == (tiny ? 8 * MIB : 0));
    /* A touch copies nothing. */
    CHECK(migrate(space, managed + 14 * MIB, 2 * MIB, uuid_of_gpu) == 0);
    drain();
    CHECK(bytes_by_cause[1] == 4 * MIB);
    by_a_word(space, managed + 14 * MIB, atoi(argv[1]));
    CHECK(migrate(space, managed + 16 * MIB, 2 * MIB, uuid_of_gpu) == 0x1e);
    CHECK(migrate(space, managed, 2 * MIB, (const unsigned char *)"no such gpu uuid") == 0x26);
    uint32_t discard[24] = { 0 };
    memcpy(discard, &managed, 8);
    uint64_t len = 2 * MIB;
    memcpy(discard + 2, &len, 8);
    discard[4] = 1;
    int routed = ioctl(space, 80, discard);
    CHECK(atoi(argv[1]) >= 580 ? routed == 0 && discard[6] == 0 : routed == -1 && errno == EINVAL);

    for (int kind = 0; kind < 64; kind++)
        CHECK(((uint64_t *)control)[2 + kind] == 0);
    CU(cuMemFree_v2, managed, 0, 0, 0, 0);
    puts("ok");
    return 0;
}
