/* The node as a program sees it. Every line that fails says which. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)

static const char *link_of(int fd)
{
    static char text[64];
    char path[64];
    sprintf(path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, text, sizeof text - 1);
    CHECK(n >= 0);
    text[n] = 0;
    return text;
}

static int poll_one(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int n = poll(&p, 1, 0);
    CHECK(n >= 0);
    return n;
}

/* Sends a descriptor through a Unix socket and takes it out again. */
static int through_a_socket(int fd)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &msg, 0) == 1);
    CHECK(recvmsg(pair[1], &msg, 0) == 1);
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof got);
    close(pair[0]);
    close(pair[1]);
    return got;
}

int main(int argc, char **argv)
{
    unsigned params[24] = { 0 };
    struct stat st;
    char text[64] = { 0 };

    /* Without a libcuda there is no driver. */
    CHECK(open("/dev/nvidia-uvm", O_RDWR) == -1 && errno == ENOENT);
    CHECK(access("/dev/nvidia-uvm-tools", R_OK) == -1 && errno == ENOENT);
    CHECK(stat("/dev/nvidia-uvm", &st) == -1 && errno == ENOENT);
    CHECK(open("/sys/module/nvidia/version", O_RDONLY) == -1 && errno == ENOENT);

    void *cuda = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda);
    int *opens = dlsym(cuda, "fake_opens"), *ioctls = dlsym(cuda, "fake_ioctls"), *last = dlsym(cuda, "fake_last_fd");
    int *up = dlsym(cuda, "fake_up"), *tools_there = dlsym(cuda, "fake_tools"), *readable = dlsym(cuda, "fake_readable");
    int (*wake)(void) = (int (*)(void))dlsym(cuda, "fake_wake");
    if (argc > 2) { /* a genuine libcuda: everything is the kernel's business, and it has no such node */
        CHECK(!opens && open("/dev/nvidia-uvm", O_RDWR) == -1 && errno == ENOENT);
        CHECK(access("/dev/nvidia-uvm", R_OK) == -1 && errno == ENOENT);
        puts("ok");
        return 0;
    }

    /* A device that is not up, or has no tools node. */
    *up = 0;
    CHECK(open("/dev/nvidia-uvm", O_RDWR) == -1 && errno == ENOENT);
    *up = 1;
    *tools_there = 0;
    CHECK(open("/dev/nvidia-uvm-tools", O_RDWR) == -1 && errno == ENOENT);
    CHECK(access("/dev/nvidia-uvm-tools", R_OK) == -1 && errno == ENOENT && access("/dev/nvidia-uvm", R_OK | W_OK) == 0);
    *tools_there = 1;
    CHECK(*opens == 0);

    /* Through every way of opening. */
    int uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
    CHECK(uvm >= 0 && *last == uvm && (fcntl(uvm, F_GETFD) & FD_CLOEXEC));
    int at = openat(AT_FDCWD, "/dev/nvidia-uvm", O_RDWR), sixtyfour = open64("/dev/nvidia-uvm", O_RDWR);
    CHECK(at >= 0 && sixtyfour >= 0 && *opens == 3 && !(fcntl(at, F_GETFD) & FD_CLOEXEC));
    int tools = open("/dev/nvidia-uvm-tools", O_RDWR | O_CLOEXEC);
    CHECK(tools >= 0 && *opens == 4);
    CHECK(stat("/dev/nvidia-uvm-tools", &st) == 0 && S_ISCHR(st.st_mode));

    /* The version. */
    int version = open("/sys/module/nvidia/version", O_RDONLY);
    CHECK(version >= 0 && read(version, text, sizeof text) == 10 && strcmp(text, "580.65.06\n") == 0);

    /* Links, as a scan of /proc/self/fd reads them. */
    CHECK(strcmp(link_of(uvm), "/dev/nvidia-uvm") == 0);
    CHECK(strcmp(link_of(tools), "/dev/nvidia-uvm-tools") == 0);
    CHECK(readlink("/proc/self/fd/0", text, sizeof text) > 0 && strncmp(text, "/dev/nvidia", 11) != 0);
    char cut[7];
    sprintf(text, "/proc/self/fd/%d", uvm);
    CHECK(readlink(text, cut, sizeof cut) == 7 && memcmp(cut, "/dev/nv", 7) == 0);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(strncmp(link_of(other), "socket:[", 8) == 0);
    CHECK(readlink("/nowhere", text, sizeof text) == -1 && errno == ENOENT);

    /* Requests, also on duplicates. */
    CHECK(ioctl(uvm, 51, params) == 0 && params[18] == 0x1e && *ioctls == 1);
    CHECK(ioctl(uvm, 12345, params) == -1 && errno == EINVAL && *ioctls == 2);
    int copy = dup(uvm), sent = through_a_socket(tools), high = fcntl(uvm, F_DUPFD_CLOEXEC, 100);
    CHECK(ioctl(copy, 51, params) == 0 && ioctl(sent, 51, params) == 0 && ioctl(high, 51, params) == 0 && *ioctls == 5);
    CHECK(strcmp(link_of(high), "/dev/nvidia-uvm") == 0 && strcmp(link_of(sent), "/dev/nvidia-uvm-tools") == 0);
    /* Mappings. */
    void *here = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(here != MAP_FAILED && mmap(here, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, copy, 4096) == here && *last == copy);
    CHECK(mmap64(here, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, high, 8192) == MAP_FAILED && errno == EINVAL && *last == high);
    /* What is not a node goes to the kernel. */
    int zero = open("/dev/zero", O_RDWR);
    int *zeros = mmap(0, 4096, PROT_READ, MAP_PRIVATE, zero, 0);
    CHECK(zeros != MAP_FAILED && *zeros == 0 && *last == high && mmap(0, 4096, PROT_READ, MAP_SHARED, 1000, 0) == MAP_FAILED && errno == EBADF);
    int pipes[2], ready;
    CHECK(pipe(pipes) == 0 && write(pipes[1], "abc", 3) == 3 && ioctl(pipes[0], FIONREAD, &ready) == 0 && ready == 3);
    CHECK(ioctl(-1, 51, params) == -1 && errno == EBADF && *ioctls == 5);
    int memfd = memfd_create("nvidia-uvm", 0);
    CHECK(ioctl(memfd, 51, params) == -1 && errno == ENOTTY && *ioctls == 5);

    /* Polling: the device decides, and a wake-up that is no longer true is taken back. */
    CHECK(poll_one(tools) == 0);
    CHECK(wake() == 1);
    *readable = 1;
    CHECK(poll_one(tools) == 1 && poll_one(sent) == 1);
    *readable = 0;
    errno = 77;
    CHECK(poll_one(tools) == 0 && errno == 77);
    CHECK(poll_one(pipes[0]) == 1);

    /* The device learns of the last close. */
    CHECK(wake() == 1 && close(tools) == 0 && wake() == 1 && close(sent) == 0 && wake() == -1 && (errno == EPIPE || errno == ECONNRESET));

    /* A child without the driver's memory still has a kernel. */
    pid_t child = fork();
    if (child == 0)
        _exit(ioctl(pipes[0], FIONREAD, &ready) == 0 && ready == 3 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("ok");
    return 0;
}
