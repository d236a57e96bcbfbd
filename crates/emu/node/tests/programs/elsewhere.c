/* Two processes: the program, with the emulated device, and another one that is handed its files and has no device at
 * all, as a daemon has. Arguments: the driver branch; the other process is this program again, with a descriptor.
 *
 * The other process does what the program's own engine would do: finds out what the file is, reads the table of
 * processors, moves blocks, reads the queue, waits for it. Then one is killed in the middle of a call. */
#include "emulated.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 16384 };
static const unsigned char cpu[16] = { 0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73 };
static unsigned char *ring;
static uint32_t *control;

/* What both processes see, behind the queue. */
struct both {
    uint64_t managed;
    unsigned char gpu[16];
    uint32_t pending; /* work inside the engine */
    uint32_t calls;   /* requests begun by the process that is to be killed */
};
static struct both *both;

static void map(int memfd)
{
    ring = mmap(0, 64 * ENTRIES + 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    CHECK(ring != MAP_FAILED);
    control = (uint32_t *)(ring + 64 * ENTRIES);
    both = (struct both *)(ring + 64 * ENTRIES + 4096);
}

/* Bytes that migrations of a cause moved, among the entries not read so far. */
static uint64_t drain(int cause)
{
    uint64_t sum = 0, bytes;
    uint32_t get = control[1], put = __atomic_load_n(&control[3], __ATOMIC_ACQUIRE);
    for (; get != put; get = (get + 1) & (ENTRIES - 1)) {
        unsigned char *e = ring + 64 * get;
        memcpy(&bytes, e + 16, 8);
        if (e[0] == 2 && e[1] == cause)
            sum += bytes;
    }
    __atomic_store_n(&control[0], get, __ATOMIC_RELEASE);
    __atomic_store_n(&control[1], get, __ATOMIC_RELEASE);
    return sum;
}

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

static void send_fds(int socket, const int *fds, size_t n)
{
    char byte = 0, space[CMSG_SPACE(3 * sizeof(int))] = { 0 };
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    CHECK(sendmsg(socket, &msg, 0) == 1);
}

static void receive_fds(int socket, int *fds, size_t n)
{
    char byte, space[CMSG_SPACE(3 * sizeof(int))];
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    CHECK(recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) == 1);
    CHECK(CMSG_FIRSTHDR(&msg)->cmsg_len == CMSG_LEN(n * sizeof(int)));
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), n * sizeof(int));
}

static void tell(int socket) { CHECK(send(socket, "g", 1, 0) == 1); }
static void hear(int socket)
{
    char byte;
    CHECK(recv(socket, &byte, 1, 0) == 1);
}

static int link_is(int fd, const char *want)
{
    char path[64], text[64];
    sprintf(path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, text, sizeof text);
    return n == (ssize_t)strlen(want) && !memcmp(text, want, (size_t)n);
}

/* The other process. */
static int other(int socket, int driver)
{
    int fds[3];
    receive_fds(socket, fds, 3);
    int space = fds[0], tools = fds[1];
    map(fds[2]);
    CHECK(link_is(space, "/dev/nvidia-uvm") && link_is(tools, "/dev/nvidia-uvm-tools"));
    CHECK(open("/dev/nvidia-uvm", O_RDWR) == -1 && errno == ENOENT);

    unsigned char table[257 * 16];
    memset(table, 0xee, sizeof table);
    uint64_t at = (uint64_t)table;
    uint32_t p[24] = { 0 };
    memcpy(p, &at, 8);
    p[2] = driver == 560;
    CHECK(ioctl(space, 64, p) == 0 && !memcmp(table, cpu, 16) && !memcmp(table + 16, both->gpu, 16));

    /* Out and in, by its own hand; each is told before the call returns. */
    uint64_t block = both->managed + 2 * MIB;
    CHECK(migrate(space, block, 2 * MIB, cpu) == 0 && drain(1) == 2 * MIB);
    CHECK(migrate(space, block, 2 * MIB, both->gpu) == 0 && drain(1) == 2 * MIB);
    CHECK(migrate(space, block, 2 * MIB, both->gpu) == 0 && drain(1) == 0);
    CHECK(migrate(space, both->managed + 16 * MIB, 2 * MIB, cpu) == 0x1e);
    CHECK(migrate(space, block, 2 * MIB, (const unsigned char *)"no such gpu uuid") == 0x26);
    CHECK(ioctl(space, 12345, p) == -1 && errno == EINVAL);
    CHECK(ioctl(space, 51, (void *)16) == -1 && errno == EFAULT);
    /* Parameters at the very end of what is mapped. */
    unsigned char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && munmap(page + 4096, 4096) == 0);
    page[4092] = 9;
    CHECK(ioctl(space, 67, page + 4092) == 0 && page[4092] == 0);
    CHECK(ioctl(space, 51, page + 4092) == -1 && errno == EFAULT);
    uint32_t discard[24] = { 0 };
    uint64_t len = 2 * MIB;
    memcpy(discard, &block, 8);
    memcpy(discard + 2, &len, 8);
    discard[4] = 1;
    int routed = ioctl(space, 80, discard);
    CHECK(driver >= 580 ? routed == 0 && discard[6] == 0 : routed == -1 && errno == EINVAL);

    /* Words of the program's are out of its reach. */
    CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, space, (off_t)page) == MAP_FAILED && errno == EOPNOTSUPP);
    CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, tools, (off_t)page) == MAP_FAILED && errno == EOPNOTSUPP);

    /* The queue, which the program attached: waited for, read, waited for again. */
    struct pollfd poll_tools = { .fd = tools, .events = POLLIN };
    drain(0);
    CHECK(poll(&poll_tools, 1, 0) == 0);
    tell(socket);
    CHECK(poll(&poll_tools, 1, 60000) == 1);
    hear(socket);
    CHECK(drain(2) + drain(3) == 0 && poll(&poll_tools, 1, 0) == 0);
    uint32_t mask[24] = { 0x7ffe };
    CHECK(ioctl(tools, 59, mask) == 0 && ioctl(tools, 58, mask) == 0 && mask[2] == 0);

    /* From now on an engine, until it is killed. */
    tell(socket);
    hear(socket);
    for (uint64_t n = 0;; n++) {
        __atomic_store_n(&both->calls, (uint32_t)n + 1, __ATOMIC_RELEASE);
        migrate(space, block, 2 * MIB, n % 2 ? both->gpu : cpu);
    }
}

static void nudge(void) { }
static int (*serves)(void);
static int is_engine_thread(void) { return serves(); }
struct hooks {
    uint32_t abi, reserved;
    const uint32_t *pending;
    void (*nudge)(void);
    int (*is_engine_thread)(void);
    void *may_touch, *given_up;
};

static pid_t start_other(char **argv, int *socket)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        sprintf(number, "%d", pair[1]);
        close(pair[0]);
        execl("/proc/self/exe", argv[0], argv[1], number, NULL);
        _exit(127);
    }
    close(pair[1]);
    *socket = pair[0];
    return child;
}

int main(int argc, char **argv)
{
    int driver = atoi(argv[1]);
    if (argc > 2)
        return other(atoi(argv[2]), driver);
    setvbuf(stdout, NULL, _IONBF, 0);
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    uint64_t context = 0, managed = 0;
    int device = 0;
    CU(cuInit, 0, 0, 0, 0, 0);
    CU(cuDeviceGet, &device, 0, 0, 0, 0);
    CU(cuDevicePrimaryCtxRetain, &context, 0, 0, 0, 0);
    CU(cuCtxSetCurrent, context, 0, 0, 0, 0);
    CU(cuMemAllocManaged, &managed, 16 * MIB, 1, 0, 0);
    CU(cuMemsetD8_v2, managed, 7, 16 * MIB, 0, 0);
    CU(cuCtxSynchronize, 0, 0, 0, 0, 0);

    int memfd = memfd_create("queue", MFD_CLOEXEC);
    CHECK(ftruncate(memfd, 64 * ENTRIES + 8192) == 0);
    map(memfd);
    both->managed = managed;
    CU(cuDeviceGetUuid, both->gpu, 0, 0, 0, 0);

    /* Attach to the first file that is an address space. */
    int tools = open("/dev/nvidia-uvm-tools", O_RDWR | O_CLOEXEC), space = -1;
    CHECK(tools >= 0);
    for (int fd = 3; fd < 64 && space < 0; fd++) {
        if (!link_is(fd, "/dev/nvidia-uvm"))
            continue;
        uint32_t p[24] = { 0 };
        uint64_t ring_at = (uint64_t)ring, control_at = (uint64_t)control, entries = ENTRIES;
        memcpy(p, &ring_at, 8);
        memcpy(p + 2, &entries, 8);
        memcpy(p + 4, &control_at, 8);
        p[10] = 1;
        p[11] = (uint32_t)fd;
        p[12] = p[13] = 1;
        CHECK(ioctl(tools, 56, p) == 0);
        if ((p[12] != 1 ? p[12] : p[13]) == 0)
            space = fd;
    }
    CHECK(space >= 0);
    uint32_t threshold[24] = { 1 }, mask[24] = { 0x7ffe };
    CHECK(ioctl(tools, 57, threshold) == 0 && ioctl(tools, 58, mask) == 0);

    int socket, fds[3] = { space, tools, memfd }, status;
    pid_t child = start_other(argv, &socket);
    send_fds(socket, fds, 3);
    hear(socket);
    /* The other process waits for the queue; a copy out of a block on the device, and in, fills it. */
    CHECK(migrate(space, managed + 8 * MIB, 2 * MIB, cpu) == 0);
    tell(socket);
    hear(socket);

    /* It becomes the engine: virtual time waits for it, and holds its thread. */
    serves = (int (*)(void))dlsym(cuda, "deepumEmuServes");
    int (*drive)(const struct hooks *) = (int (*)(const struct hooks *))dlsym(cuda, "deepumEmuDrive");
    uint64_t (*now)(void) = (uint64_t (*)(void))dlsym(cuda, "deepumEmuTime");
    CHECK(serves && drive && now && !serves());
    struct hooks hooks = { .abi = ABI, .pending = &both->pending, .nudge = nudge, .is_engine_thread = is_engine_thread };
    CHECK(drive(&hooks) == 0);
    both->pending = 1;
    uint64_t before = now();
    tell(socket);
    while (__atomic_load_n(&both->calls, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    usleep(20000);
    CHECK(both->calls == 1 && now() == before); /* no virtual time has passed: it stands in its first call */
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));

    /* Who learns of it gives the pace back; then nothing of the dead one is under way. */
    CHECK(drive(NULL) == 0);
    both->pending = 0;
    CU(cuMemsetD8_v2, managed + 4 * MIB, 7, 4 * MIB, 0, 0);
    CU(cuCtxSynchronize, 0, 0, 0, 0, 0);
    CHECK(now() > before);
    drain(0);
    CU(cuMemFree_v2, managed, 0, 0, 0, 0);
    CU(cuCtxSynchronize, 0, 0, 0, 0, 0);
    CHECK(drain(1) == 0);

    /* The files are the program's as before. */
    CHECK(link_is(space, "/dev/nvidia-uvm") && migrate(space, managed, 2 * MIB, cpu) == 0x1e);
    puts("ok");
    return 0;
}
