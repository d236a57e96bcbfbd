/* A libcuda.so.1 that only has the four functions the node asks for, and counts what reaches it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int fake_opens, fake_ioctls, fake_last_fd, fake_up = 1, fake_tools = 1, fake_readable;
static int peer_of_tools = -1;

/* The device wakes a poller, or finds out that the tools file is closed. */
int fake_wake(void) { return (int)send(peer_of_tools, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

int deepumEmuUvmOpen(int node, int fd, int peer)
{
    if (!fake_up || (node == 1 && !fake_tools))
        return ENOENT;
    if (fd < 0)
        return EBADF;
    fake_opens++;
    fake_last_fd = fd;
    if (node == 1)
        peer_of_tools = peer;
    return 0;
}

int deepumEmuUvmIoctl(int fd, unsigned long request, void *arg)
{
    fake_ioctls++;
    fake_last_fd = fd;
    if (request != 51)
        return -EINVAL;
    ((unsigned *)arg)[18] = 0x1e;
    return 0;
}

int deepumEmuUvmPoll(int fd)
{
    (void)fd;
    if (fake_readable)
        fake_wake();
    return fake_readable;
}

int deepumEmuUvmMap(int fd, unsigned long at, unsigned long len, int protection, int flags, long offset)
{
    (void)at, (void)len, (void)protection, (void)flags;
    fake_last_fd = fd;
    return offset == 8192 ? -EINVAL : 0;
}

int deepumEmuDriverRelease(char *text, size_t room)
{
    const char *release = "580.65.06";
    if (!fake_up || strlen(release) > room)
        return -1;
    memcpy(text, release, strlen(release));
    return (int)strlen(release);
}
