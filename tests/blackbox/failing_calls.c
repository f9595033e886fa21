/* Calls to the file system that fail on demand: the n-th that reaches into a folder.

   Loaded with LD_PRELOAD. `arm` chooses the folder, the number of the call and its error for each kind of call; calls
   elsewhere, of the interpreter as it imports modules, are neither counted nor touched. In the folder nothing is ever
   synchronised: a test needs no disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, CREATE, READ, WRITE, SYNC, RENAME, UNLINK, MKDIR, KINDS };

static char folder[PATH_MAX];
static size_t folder_length;
static long failing;
static int lasting;
static int errors[KINDS];
static long calls;
static char failed[2 * PATH_MAX];
static int failed_errno;

/* Count calls below `path` from now on. The n-th fails with the error of its kind; kinds whose error is 0 are not
   counted. With `persist`, those after it fail as well. With n < 0, none fails: each is a line written to descriptor
   -n. */
void arm(const char *path, long n, const int *error_of, int persist)
{
    failing = 0;
    calls = 0;
    failed[0] = 0;
    failed_errno = 0;
    lasting = persist;
    memcpy(errors, error_of, sizeof errors);
    folder_length = strlen(path);
    strcpy(folder, path);
    failing = n;
}

/* Kill this process at its call number KILL_AT below KILL_IN, whichever kind it has. */
__attribute__((constructor)) static void arm_by_environment(void)
{
    const char *path = getenv("KILL_IN"), *number = getenv("KILL_AT");
    int deadly[KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        deadly[kind] = -SIGKILL;
    if (path && number)
        arm(path, atol(number), deadly, 0);
}

void disarm(void) { folder_length = 0; }
const char *failed_call(void) { return failed; }
int failed_error(void) { return failed_errno; }

static int fails(enum kind kind, const char *name, const char *path)
{
    if (errors[kind] == 0 || strncmp(path, folder, folder_length) || strchr("/", path[folder_length]) == NULL)
        return 0;
    if (failing < 0) {
        dprintf((int)-failing, "%s(%s)\n", name, path + folder_length);
        return 0;
    }
    long number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (lasting ? number < failing : number != failing)
        return 0;
    if (number == failing) {
        failed_errno = errors[kind];
        snprintf(failed, sizeof failed, "%s(%s)", name, path + folder_length);
    }
    if (errors[kind] < 0)
        raise(-errors[kind]);
    errno = errors[kind];
    return 1;
}

static int path_fails(enum kind kind, const char *name, int directory, const char *path)
{
    if (folder_length == 0)
        return 0;
    char link[64], whole[2 * PATH_MAX];
    if (path[0] == '/')
        return fails(kind, name, path);
    if (directory == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, whole, PATH_MAX);
    if (length < 0)
        return 0;
    snprintf(whole + length, PATH_MAX, "/%s", path);
    return fails(kind, name, whole);
}

static int descriptor_fails(enum kind kind, const char *name, int descriptor)
{
    if (folder_length == 0)
        return 0;
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(kind, name, path);
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (next == NULL) \
        next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
#define OPENING ((flags & O_ACCMODE) == O_RDONLY ? OPEN : CREATE)

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        NEXT(name); \
        MODE \
        return path_fails(OPENING, #name, AT_FDCWD, path) ? -1 : next(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        NEXT(name); \
        MODE \
        return path_fails(OPENING, #name, directory, path) ? -1 : next(directory, path, flags, mode); \
    }
/* A call whose first argument is a descriptor. */
#define USES(result, name, kind, arguments, ...) \
    result name arguments \
    { \
        NEXT(name); \
        return descriptor_fails(kind, #name, descriptor) ? -1 : next(__VA_ARGS__); \
    }
/* A call that changes a name. */
#define CHANGES(name, kind, directory, arguments, ...) \
    int name arguments \
    { \
        NEXT(name); \
        return path_fails(kind, #name, directory, path) ? -1 : next(__VA_ARGS__); \
    }

OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return path_fails(strchr("wa", mode[0]) ? CREATE : OPEN, "fopen", AT_FDCWD, path) ? NULL : next(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    NEXT(fopen64);
    return path_fails(strchr("wa", mode[0]) ? CREATE : OPEN, "fopen64", AT_FDCWD, path) ? NULL : next(path, mode);
}

USES(ssize_t, read, READ, (int descriptor, void *to, size_t size), descriptor, to, size)
USES(ssize_t, pread, READ, (int descriptor, void *to, size_t size, off_t at), descriptor, to, size, at)
USES(ssize_t, pread64, READ, (int descriptor, void *to, size_t size, off64_t at), descriptor, to, size, at)
USES(ssize_t, readv, READ, (int descriptor, const struct iovec *to, int n), descriptor, to, n)
USES(ssize_t, preadv, READ, (int descriptor, const struct iovec *to, int n, off_t at), descriptor, to, n, at)
USES(ssize_t, preadv64, READ, (int descriptor, const struct iovec *to, int n, off64_t at), descriptor, to, n, at)
USES(ssize_t, preadv2, READ, (int descriptor, const struct iovec *to, int n, off_t at, int flags), descriptor, to, n, at, flags)
USES(ssize_t, preadv64v2, READ, (int descriptor, const struct iovec *to, int n, off64_t at, int flags), descriptor, to, n, at, flags)
USES(ssize_t, write, WRITE, (int descriptor, const void *from, size_t size), descriptor, from, size)
USES(ssize_t, pwrite, WRITE, (int descriptor, const void *from, size_t size, off_t at), descriptor, from, size, at)
USES(ssize_t, pwrite64, WRITE, (int descriptor, const void *from, size_t size, off64_t at), descriptor, from, size, at)
USES(ssize_t, writev, WRITE, (int descriptor, const struct iovec *from, int n), descriptor, from, n)
USES(ssize_t, pwritev, WRITE, (int descriptor, const struct iovec *from, int n, off_t at), descriptor, from, n, at)
USES(ssize_t, pwritev64, WRITE, (int descriptor, const struct iovec *from, int n, off64_t at), descriptor, from, n, at)
USES(ssize_t, sendfile, WRITE, (int descriptor, int from, off_t *at, size_t size), descriptor, from, at, size)
USES(ssize_t, sendfile64, WRITE, (int descriptor, int from, off64_t *at, size_t size), descriptor, from, at, size)
USES(int, ftruncate, WRITE, (int descriptor, off_t size), descriptor, size)
USES(int, ftruncate64, WRITE, (int descriptor, off64_t size), descriptor, size)

int fsync(int descriptor)
{
    NEXT(fsync);
    if (descriptor_fails(SYNC, "fsync", descriptor))
        return -1;
    return folder_length ? 0 : next(descriptor);
}

int fdatasync(int descriptor)
{
    NEXT(fdatasync);
    if (descriptor_fails(SYNC, "fdatasync", descriptor))
        return -1;
    return folder_length ? 0 : next(descriptor);
}

CHANGES(mkdir, MKDIR, AT_FDCWD, (const char *path, mode_t mode), path, mode)
CHANGES(mkdirat, MKDIR, directory, (int directory, const char *path, mode_t mode), directory, path, mode)
CHANGES(rmdir, UNLINK, AT_FDCWD, (const char *path), path)
CHANGES(unlink, UNLINK, AT_FDCWD, (const char *path), path)
CHANGES(unlinkat, UNLINK, directory, (int directory, const char *path, int flags), directory, path, flags)
CHANGES(rename, RENAME, AT_FDCWD, (const char *path, const char *to), path, to)
CHANGES(renameat, RENAME, directory, (int directory, const char *path, int there, const char *to), directory, path, there, to)
CHANGES(renameat2, RENAME, directory, (int directory, const char *path, int there, const char *to, unsigned int flags), directory, path, there, to, flags)
CHANGES(link, RENAME, AT_FDCWD, (const char *path, const char *to), path, to)
CHANGES(linkat, RENAME, directory, (int directory, const char *path, int there, const char *to, int flags), directory, path, there, to, flags)
CHANGES(symlink, RENAME, AT_FDCWD, (const char *to, const char *path), to, path)
