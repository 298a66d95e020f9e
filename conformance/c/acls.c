/* Access control lists: acl(5), as extended attributes. */
#include "tap.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

struct entry {
	uint16_t tag, rights;
	uint32_t id;
};

struct list {
	uint32_t version;
	struct entry entries[12];
};

#define NOBODY UINT32_MAX
#define LIST(...) \
	((struct list){ 2, { __VA_ARGS__ } }), 4 + sizeof((struct entry[]){ __VA_ARGS__ })
#define FULL(user, named, group, named_group, mask, other) \
	{ USER_OBJ, user, NOBODY }, { USER, named, 1000 }, { GROUP_OBJ, group, NOBODY }, { GROUP, named_group, 5000 }, \
		{ MASK, mask, NOBODY }, { OTHER, other, NOBODY }

static int set(const char *path, const char *name, struct list list, size_t size)
{
	return setxattr(path, name, &list, size, 0);
}

static int is(const char *path, const char *name, struct list want, size_t size)
{
	struct list got;
	return getxattr(path, name, &got, sizeof got) == (ssize_t)size && memcmp(&got, &want, size) == 0;
}

static int mode(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0 ? (int)(st.st_mode & 07777) : -1;
}

static int made(const char *path, int bits)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR, bits);
	REQUIRE(fd >= 0);
	return fd;
}

/* Whether a user of these groups may do this with a file, by access(2) with its effective ids. */
static int may(const char *path, uid_t uid, gid_t gid, gid_t other, int want)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		REQUIRE(setgroups(1, &other) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0);
		_exit(faccessat(AT_FDCWD, path, want, 0) == 0 ? 1 : errno == EACCES ? 0 : 2);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void attributes(void)
{
	char names[256];
	struct list got;
	close(made("f", 0640));
	CHECK_ERRNO(getxattr("f", ACCESS, NULL, 0), ENODATA);
	CHECK_ERRNO(getxattr("f", DEFAULT, NULL, 0), ENODATA);
	CHECK_OK(set("f", ACCESS, LIST(FULL(7, 6, 5, 4, 6, 1))));
	CHECK_EQ(mode("f"), 0761);
	CHECK(is("f", ACCESS, LIST(FULL(7, 6, 5, 4, 6, 1))));
	CHECK_EQ(getxattr("f", ACCESS, NULL, 0), 52);
	CHECK_ERRNO(getxattr("f", ACCESS, &got, 51), ERANGE);
	CHECK_EQ(listxattr("f", names, sizeof names), sizeof ACCESS);
	CHECK(memcmp(names, ACCESS, sizeof ACCESS) == 0);
	/* The flags mean nothing. */
	struct list again = { 2, { FULL(6, 6, 5, 4, 6, 1) } };
	CHECK_OK(setxattr("f", ACCESS, &again, 52, XATTR_CREATE));
	CHECK_EQ(mode("f"), 0661);
	/* What a mode says as well is not kept. */
	CHECK_OK(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { OTHER, 2, NOBODY })));
	CHECK_EQ(mode("f"), 0642);
	CHECK_ERRNO(getxattr("f", ACCESS, &got, sizeof got), ENODATA);
	CHECK_OK(setxattr("f", ACCESS, &again, 52, XATTR_REPLACE));
	/* chmod changes the mask, and the group's own entry where there is none. */
	CHECK_OK(chmod("f", 0710));
	CHECK(is("f", ACCESS, LIST(FULL(7, 6, 5, 4, 1, 0))));
	CHECK_EQ(mode("f"), 0710);
	CHECK_OK(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { MASK, 7, NOBODY }, { OTHER, 0, NOBODY })));
	CHECK_EQ(mode("f"), 0670);
	CHECK_EQ(getxattr("f", ACCESS, NULL, 0), 36);
	/* Without a list the mode stays. */
	CHECK_OK(removexattr("f", ACCESS));
	CHECK_EQ(mode("f"), 0670);
	CHECK_ERRNO(getxattr("f", ACCESS, NULL, 0), ENODATA);
	CHECK_OK(removexattr("f", ACCESS));
	CHECK_OK(setxattr("f", ACCESS, &again, 52, 0));
	CHECK_OK(setxattr("f", ACCESS, &again, 4, 0));
	CHECK_ERRNO(getxattr("f", ACCESS, NULL, 0), ENODATA);
	/* Ids of entries that have none do not matter, and are shown as none. */
	CHECK_OK(set("f", ACCESS, LIST({ USER_OBJ, 6, 17 }, { USER, 7, 3 }, { GROUP_OBJ, 4, 0 }, { MASK, 7, 1 }, { OTHER, 0, 2 })));
	CHECK(is("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { USER, 7, 3 }, { GROUP_OBJ, 4, NOBODY }, { MASK, 7, NOBODY },
				   { OTHER, 0, NOBODY })));
	CHECK_OK(chmod("f", 04755));
	CHECK_OK(set("f", ACCESS, LIST(FULL(7, 7, 7, 7, 5, 5))));
	CHECK_EQ(mode("f"), 04755);
	unlink("f");
}

static void wrong(void)
{
	struct list list = { 2, { FULL(7, 6, 5, 4, 6, 1) } };
	close(made("f", 0640));
	/* Nothing at all removes it since Linux 6.2. */
	CHECK(setxattr("f", ACCESS, &list, 0, 0) == 0 || errno == EINVAL);
	CHECK_ERRNO(setxattr("f", ACCESS, &list, 3, 0), EINVAL);
	CHECK_ERRNO(setxattr("f", ACCESS, &list, 51, 0), EINVAL);
	CHECK_ERRNO(setxattr("f", ACCESS, &list, 44, 0), EINVAL);
	list.version = 1;
	CHECK_ERRNO(setxattr("f", ACCESS, &list, 52, 0), EOPNOTSUPP);
	CHECK_ERRNO(set("f", ACCESS, LIST({ 3, 6, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { OTHER, 0, NOBODY })), EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ USER_OBJ, 8, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { OTHER, 0, NOBODY })), EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ GROUP_OBJ, 4, NOBODY }, { USER_OBJ, 6, NOBODY }, { OTHER, 0, NOBODY })), EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { OTHER, 0, NOBODY })), EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { USER, 6, 4 }, { GROUP_OBJ, 4, NOBODY }, { OTHER, 0, NOBODY })),
		    EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { USER, 6, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { MASK, 0, NOBODY },
					  { OTHER, 0, NOBODY })),
		    EINVAL);
	CHECK_ERRNO(set("f", ACCESS, LIST({ USER_OBJ, 6, NOBODY }, { GROUP_OBJ, 4, NOBODY }, { MASK, 0, NOBODY }, { MASK, 0, NOBODY },
					  { OTHER, 0, NOBODY })),
		    EINVAL);
	CHECK_EQ(mode("f"), 0640);
	CHECK_ERRNO(set("f", DEFAULT, LIST(FULL(7, 6, 5, 4, 6, 1))), EACCES);
	CHECK_OK(removexattr("f", DEFAULT));
	CHECK_ERRNO(getxattr("f", "system.other", NULL, 0), EOPNOTSUPP);
	list.version = 2;
	REQUIRE(symlink("f", "l") == 0);
	CHECK_ERRNO(lsetxattr("l", ACCESS, &list, 52, 0), EOPNOTSUPP);
	CHECK_ERRNO(lgetxattr("l", ACCESS, NULL, 0), EOPNOTSUPP);
	int ends[2];
	REQUIRE(pipe(ends) == 0);
	CHECK_ERRNO(fgetxattr(ends[0], ACCESS, NULL, 0), EOPNOTSUPP);
	CHECK_ERRNO(fsetxattr(ends[0], ACCESS, &list, 52, 0), EOPNOTSUPP);
	close(ends[0]);
	close(ends[1]);
	CHECK_ERRNO(getxattr("/proc/self/status", ACCESS, NULL, 0), EOPNOTSUPP);
	/* Events tell of it. */
	int watch = inotify_init1(IN_NONBLOCK);
	struct inotify_event event;
	REQUIRE(watch >= 0 && inotify_add_watch(watch, "f", IN_ATTRIB) >= 0);
	CHECK_OK(set("f", ACCESS, LIST(FULL(7, 6, 5, 4, 6, 1))));
	CHECK(read(watch, &event, sizeof event) == sizeof event && event.mask == IN_ATTRIB);
	close(watch);
	unlink("l");
	unlink("f");
}

static void rights(void)
{
	int fd = made("f", 0);
	REQUIRE(chown("f", 2000, 3000) == 0);
	REQUIRE(set("f", ACCESS, LIST({ USER_OBJ, 1, NOBODY }, { USER, 6, 1000 }, { USER, 0, 1001 }, { USER, 7, 2000 },
				      { GROUP_OBJ, 4, NOBODY }, { GROUP, 2, 5000 }, { GROUP, 7, 5001 }, { MASK, 6, NOBODY },
				      { OTHER, 5, NOBODY })) == 0);
	/* The owner's entry is the owner's. */
	CHECK(may("f", 2000, 1, 1, X_OK) == 1 && may("f", 2000, 1, 1, R_OK) == 0);
	CHECK(may("f", 1000, 1, 1, R_OK | W_OK) == 1 && may("f", 1000, 1, 1, X_OK) == 0);
	CHECK(may("f", 1001, 5001, 3000, R_OK) == 0);
	CHECK(may("f", 1002, 3000, 1, R_OK) == 1 && may("f", 1002, 3000, 1, W_OK) == 0);
	/* One entry must have all of it. */
	CHECK(may("f", 1002, 3000, 5000, R_OK) == 1 && may("f", 1002, 3000, 5000, W_OK) == 1);
	CHECK(may("f", 1002, 3000, 5000, R_OK | W_OK) == 0);
	CHECK(may("f", 1002, 1, 5001, R_OK | W_OK) == 1 && may("f", 1002, 1, 5001, X_OK) == 0);
	CHECK(may("f", 1002, 5000, 1, R_OK) == 0);
	CHECK(may("f", 1002, 1, 1, R_OK | X_OK) == 1 && may("f", 1002, 1, 1, W_OK) == 0);
	/* Without rights in the mask nobody looks at the list. */
	REQUIRE(chmod("f", 0107) == 0);
	CHECK(may("f", 1000, 1, 1, R_OK | W_OK | X_OK) == 1 && may("f", 1002, 3000, 1, R_OK) == 0);
	/* Directories. */
	REQUIRE(mkdir("d", 0700) == 0);
	close(made("d/g", 0666));
	CHECK(may("d/g", 1000, 1, 1, R_OK) == 0);
	REQUIRE(set("d", ACCESS, LIST({ USER_OBJ, 7, NOBODY }, { USER, 1, 1000 }, { GROUP_OBJ, 0, NOBODY }, { MASK, 1, NOBODY },
				      { OTHER, 0, NOBODY })) == 0);
	CHECK(may("d/g", 1000, 1, 1, R_OK) == 1 && may("d/g", 1001, 1, 1, R_OK) == 0);
	CHECK_EQ(may("d", 1000, 1, 1, R_OK), 0);
	/* Only the owner may set one; that takes the set-group-ID bit if the group is not the owner's. */
	int status;
	REQUIRE(chown("f", 1000, 3000) == 0 && chmod("f", 02760) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		gid_t none = 1;
		REQUIRE(setgroups(1, &none) == 0 && setresgid(1, 1, 1) == 0 && setresuid(1000, 1000, 1000) == 0);
		if (!fails(set("d", ACCESS, LIST(FULL(7, 6, 5, 4, 6, 1))), EPERM) || !fails(removexattr("d", ACCESS), EPERM))
			_exit(1);
		struct list list = { 2, { FULL(7, 6, 5, 4, 6, 1) } };
		_exit(fsetxattr(fd, ACCESS, &list, 52, 0) == 0 ? 42 : 2);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WEXITSTATUS(status), 42);
	CHECK_EQ(mode("f"), 0761);
	close(fd);
	unlink("d/g");
	rmdir("d");
	unlink("f");
}

static void inheritance(void)
{
	umask(077);
	REQUIRE(mkdir("d", 0755) == 0);
	CHECK_OK(set("d", DEFAULT, LIST(FULL(7, 6, 5, 4, 6, 1))));
	CHECK_EQ(mode("d"), 0700);
	CHECK(is("d", DEFAULT, LIST(FULL(7, 6, 5, 4, 6, 1))));
	close(made("d/f", 0666));
	CHECK_EQ(mode("d/f"), 0660);
	CHECK(is("d/f", ACCESS, LIST(FULL(6, 6, 5, 4, 6, 0))));
	CHECK_ERRNO(getxattr("d/f", DEFAULT, NULL, 0), ENODATA);
	close(made("d/g", 0751));
	CHECK_EQ(mode("d/g"), 0741);
	CHECK(is("d/g", ACCESS, LIST(FULL(7, 6, 5, 4, 4, 1))));
	REQUIRE(mkdir("d/e", 0777) == 0);
	CHECK_EQ(mode("d/e"), 0761);
	CHECK(is("d/e", DEFAULT, LIST(FULL(7, 6, 5, 4, 6, 1))));
	CHECK(is("d/e", ACCESS, LIST(FULL(7, 6, 5, 4, 6, 1))));
	REQUIRE(mkfifo("d/p", 0622) == 0);
	CHECK_EQ(mode("d/p"), 0620);
	REQUIRE(symlink("f", "d/l") == 0);
	CHECK_EQ(mode("d/l"), 0777);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address = { AF_UNIX, "d/s" };
	REQUIRE(s >= 0 && bind(s, (void *)&address, sizeof address) == 0);
	/* A socket has lost what the umask takes before. */
	CHECK_EQ(mode("d/s"), 0700);
	close(s);
	int fd = open("d", O_TMPFILE | O_RDWR, 0666);
	struct stat st;
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0660 && fgetxattr(fd, ACCESS, NULL, 0) == 52);
	close(fd);
	/* One that says what a mode says leaves no list, but takes the place of the umask. */
	REQUIRE(set("d/e", DEFAULT, LIST({ USER_OBJ, 7, NOBODY }, { GROUP_OBJ, 5, NOBODY }, { OTHER, 5, NOBODY })) == 0);
	CHECK_EQ(getxattr("d/e", DEFAULT, NULL, 0), 28);
	close(made("d/e/f", 0666));
	CHECK_EQ(mode("d/e/f"), 0644);
	CHECK_ERRNO(getxattr("d/e/f", ACCESS, NULL, 0), ENODATA);
	/* Renames and links leave lists as they are; copies of names do not get one. */
	CHECK_OK(rename("d/g", "d/e/g"));
	CHECK(is("d/e/g", ACCESS, LIST(FULL(7, 6, 5, 4, 4, 1))));
	REQUIRE(removexattr("d", DEFAULT) == 0);
	close(made("d/h", 0666));
	CHECK_EQ(mode("d/h"), 0600);
	umask(022);
	const char *const all[] = { "d/e/g", "d/e/f", "d/e", "d/f", "d/h", "d/p", "d/l", "d/s", "d" };
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		REQUIRE(remove(all[i]) == 0);
}

static void everything(void)
{
	attributes();
	wrong();
	if (getuid() == 0)
		rights();
	inheritance();
}

int main(void)
{
	const char *directory = tap_directory();
	REQUIRE(chmod(directory, 0755) == 0);
	everything();
	rmdir(directory);
	/* The same in memory, where that is another file system. */
	char memory[] = "/dev/shm/acls-XXXXXX";
	REQUIRE(mkdtemp(memory) && chdir(memory) == 0 && chmod(memory, 0755) == 0);
	everything();
	rmdir(memory);
	return tap_done();
}
