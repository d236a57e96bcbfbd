// What every program here uses. They print what they find, and nothing that may differ from run to run: no address, no time, no count
// of a race.
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

// Unbuffered: what was printed is out, whoever forks or ends how.
#define say(...) ((void)dprintf(STDOUT_FILENO, __VA_ARGS__))
// What a program needs to be a test at all.
#define NEED(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) dprintf(STDERR_FILENO, "%s:%d: needed: %s\n", __FILE__, __LINE__, #condition), _exit(90); \
    } while (0)

static inline uint64_t digest(const void *at, size_t bytes) {
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)at + i, 8);
        sum = (sum ^ word) * 0x100000001b3, sum ^= sum >> 29;
    }
    return sum;
}

// How a child ended: its exit status, or 1000 and its signal.
static inline int ended(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// This program again, in a process of its own, with the ends of two pipes for it as its words: it reads from the first and writes to the second.
static inline pid_t again(const char *program, int to_it[2], int from_it[2]) {
    NEED(pipe(to_it) == 0 && pipe(from_it) == 0);
    pid_t child = fork();
    if (child == 0) {
        char numbers[2][16];
        snprintf(numbers[0], 16, "%d", to_it[0]), snprintf(numbers[1], 16, "%d", from_it[1]);
        execl(program, program, numbers[0], numbers[1], NULL);
        _exit(91);
    }
    return child;
}
