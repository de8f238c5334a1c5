/* Loaded before libc. It sees the calls that a process makes on the files below one folder; nothing else is changed.

   disk_arm() begins to count them, and fails those that it is told to: a call that fails has had no effect.
   disk_record() begins to write down what changes the disk, one after another, with all bytes, and ends the process
   before the call that it is told to. disk_mark() writes a word of the process's own between them.

   Built and used by tests/torture/disk.py and tests/storage/power.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITES = 1, READS = 2 };

static char folder[4096];
static size_t folder_length;
static long first, last;          /* the calls that fail, counted from 1; first == 0: none */
static int code, kinds, log_fd = -1;
static atomic_long count;

void disk_arm(const char *below, long from, long to, int error, int which, const char *log) {
    snprintf(folder, sizeof folder, "%s", below);
    folder_length = strlen(folder);
    first = from, last = to, code = error, kinds = which;
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    atomic_store(&count, 0);
}

static int book = -1;
static long left;                 /* calls until the process ends; 0: it does not */
static pthread_mutex_t one_by_one = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void disk_record(const char *below, const char *into, long calls) {
    snprintf(folder, sizeof folder, "%s", below);
    folder_length = strlen(folder);
    book = (int)syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    left = calls;
}

/* One line: what, where, a number, how many bytes follow, and the other name of a rename. Then the bytes. */
static void note(const char *what, const char *path, long number, const void *data, size_t size, const char *other) {
    char line[9000];
    int length = snprintf(line, sizeof line, "%s\t%s\t%ld\t%zu\t%s\n", what, path, number, size, other);
    struct iovec parts[] = {{line, (size_t)length}, {(void *)data, size}};
    syscall(SYS_writev, book, parts, size ? 2 : 1);
}

void disk_mark(const char *word) {
    pthread_mutex_lock(&one_by_one);
    note("mark", word, 0, "", 0, "");
    pthread_mutex_unlock(&one_by_one);
}

static int is_below(const char *path) {
    return folder_length && strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == 0);
}

static void path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
}

/* Whether the call is written down; then nobody else's is until done(). */
static int is_noted(const char *path) {
    if (book < 0 || !is_below(path)) return 0;
    pthread_mutex_lock(&one_by_one);
    if (left && !--left) syscall(SYS_exit_group, 9);
    return 1;
}

static void done(const char *what, const char *path, long number, const void *data, size_t size, const char *other,
                 int is_done) {
    int kept = errno;
    if (is_done) note(what, path + folder_length, number, data, size, other);
    pthread_mutex_unlock(&one_by_one);
    errno = kept;
}

static int is_noted_fd(int fd, char *path) {
    if (book < 0) return 0;
    path_of(fd, path, 4096);
    return is_noted(path);
}

static void whole_path(int at, const char *path, char *whole) {
    if (path[0] == '/' || at == AT_FDCWD) {
        snprintf(whole, 8300, "%s", path);
        return;
    }
    path_of(at, whole, 4096);
    size_t length = strlen(whole);
    snprintf(whole + length, 8300 - length, "/%s", path);
}

static int is_noted_at(int at, const char *path, char *whole) {
    if (book < 0) return 0;
    whole_path(at, path, whole);
    return is_noted(whole);
}

/* Whether the call fails; errno is set then. */
static int fails(const char *name, const char *path, int kind) {
    if (log_fd < 0 || !is_below(path) || !(kind & kinds)) return 0;
    int kept = errno;
    long number = atomic_fetch_add(&count, 1) + 1;
    int does = first && number >= first && number <= last;
    char line[4400];
    int length = snprintf(line, sizeof line, "%ld %s %s%s\n", number, name, path + folder_length, does ? " FAILED" : "");
    syscall(SYS_write, log_fd, line, (size_t)length);
    errno = does ? code : kept;
    return does;
}

static int fails_fd(const char *name, int fd, int kind) {
    if (log_fd < 0) return 0;
    char path[4096];
    path_of(fd, path, sizeof path);
    return fails(name, path, kind);
}

static int fails_at(const char *name, int at, const char *path, int kind) {
    if (log_fd < 0) return 0;
    char whole[8300];
    whole_path(at, path, whole);
    return fails(name, whole, kind);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

#define OPENS(flags) ((flags) & (O_CREAT | O_TRUNC) ? WRITES : READS)

/* The call that `...` is, written down where it changes the disk. */
#define NOTED_AT(at, path, what, number, other, ok, ...) \
    char whole[8300]; \
    if (!is_noted_at(at, path, whole)) return __VA_ARGS__; \
    __typeof__(__VA_ARGS__) result = __VA_ARGS__; \
    done(what, whole, number, "", 0, other, ok); \
    return result;

#define NOTED_FD(fd, what, number, data, size, ...) \
    char whole[4096]; \
    if (!is_noted_fd(fd, whole)) return __VA_ARGS__; \
    long offset = (number); \
    __typeof__(__VA_ARGS__) result = __VA_ARGS__; \
    done(what, whole, offset, data, size, "", result >= 0); \
    return result;

#define OPENED(at, call) \
    if (fails_at("open", at, path, OPENS(flags))) return -1; \
    if (!(flags & (O_CREAT | O_TRUNC))) return call; \
    char seen[8300]; \
    struct stat facts; \
    int was_there = book >= 0 && (whole_path(at, path, seen), stat(seen, &facts) == 0); \
    NOTED_AT(at, path, was_there ? "cut" : "create", 0, "", result >= 0 && (!was_there || flags & O_TRUNC), call)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); MODE(flags) \
        OPENED(AT_FDCWD, real(path, flags, mode)) }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); MODE(flags) \
        OPENED(at, real(at, path, flags, mode)) }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int fd, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t);
    return fails_fd("read", fd, READS) ? -1 : real(fd, data, size);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (fails_fd("write", fd, WRITES)) return -1;
    NOTED_FD(fd, "write", (long)syscall(SYS_lseek, fd, 0, SEEK_CUR), data, result > 0 ? (size_t)result : 0,
             real(fd, data, size))
}

#define READ_AT(name, offset_type) \
    ssize_t name(int fd, void *data, size_t size, offset_type at) { \
        REAL(ssize_t, name, int, void *, size_t, offset_type); \
        return fails_fd("pread", fd, READS) ? -1 : real(fd, data, size, at); }
READ_AT(pread, off_t)
READ_AT(pread64, off64_t)

#define WRITE_AT(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t size, offset_type at) { \
        REAL(ssize_t, name, int, const void *, size_t, offset_type); \
        if (fails_fd("pwrite", fd, WRITES)) return -1; \
        NOTED_FD(fd, "write", (long)at, data, result > 0 ? (size_t)result : 0, real(fd, data, size, at)) }
WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, name, int); \
        if (fails_fd(#name, fd, WRITES)) return -1; \
        NOTED_FD(fd, "sync", 0, "", 0, real(fd)) }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, offset_type) \
    int name(int fd, offset_type size) { \
        REAL(int, name, int, offset_type); \
        if (fails_fd("ftruncate", fd, WRITES)) return -1; \
        NOTED_FD(fd, "cut", (long)size, "", 0, real(fd, size)) }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (fails_at("rename", AT_FDCWD, to, WRITES)) return -1;
    NOTED_AT(AT_FDCWD, to, "rename", 0, from + folder_length, result >= 0, real(from, to))
}

int renameat(int at, const char *from, int to_at, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return fails_at("rename", to_at, to, WRITES) ? -1 : real(at, from, to_at, to);
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    if (fails_at("unlink", AT_FDCWD, path, WRITES)) return -1;
    NOTED_AT(AT_FDCWD, path, "unlink", 0, "", result >= 0, real(path))
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (fails_at("mkdir", AT_FDCWD, path, WRITES)) return -1;
    NOTED_AT(AT_FDCWD, path, "mkdir", 0, "", result >= 0, real(path, mode))
}

int chmod(const char *path, mode_t mode) {
    REAL(int, chmod, const char *, mode_t);
    return fails_at("chmod", AT_FDCWD, path, WRITES) ? -1 : real(path, mode);
}

int fchmod(int fd, mode_t mode) {
    REAL(int, fchmod, int, mode_t);
    return fails_fd("fchmod", fd, WRITES) ? -1 : real(fd, mode);
}
