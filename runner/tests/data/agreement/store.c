/*
 * A key-value service with a log on disk, for the test that compares coverage with LLVM's: branches that faults decide, code that
 * nothing reaches, and most forms of statements of the language.
 */
#include "table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 32
#define LONGEST 4096
#define FIELD(text, name) field((text), "\"" name "\":")

enum method { GET, PUT, DELETE, POST, UNKNOWN };

struct client {
	int fd;
	size_t length;
	char bytes[LONGEST + 1];
};

struct answer {
	int status;
	char body[LONGEST];
};

static struct table table;
static struct client clients[CLIENTS];
static int log_fd = -1;
static unsigned long served, refused;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 204:
		return "No Content";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 409:
		return "Conflict";
	case 413:
		return "Content Too Large";
	default:
		return "Internal Server Error";
	}
}

/* The text behind a name in an object of JSON, without its quotes; "" for null. */
static char *field(const char *text, const char *name)
{
	static char found[2][LONGEST];
	static int which;
	char *to = found[which ^= 1];
	const char *from = strstr(text, name);
	size_t length = 0;

	if (!from)
		return NULL;
	from += strlen(name);
	while (*from == ' ')
		from++;
	if (strncmp(from, "null", 4) == 0) {
		to[0] = '\0';
		return to;
	}
	if (*from++ != '"')
		return NULL;
	for (; *from && *from != '"'; from++) {
		if (*from == '\\')
			return NULL;
		to[length++] = *from;
	}
	to[length] = '\0';
	return *from == '"' ? to : NULL;
}

static int write_all(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t written = write(fd, bytes, length);
		if (written < 0) {
			if (errno == EINTR)
				continue;
			return -1;
		}
		bytes += written;
		length -= (size_t)written;
	}
	return 0;
}

/* One line for each change: "+name value" or "-name". */
static void record(char kind, const char *name, const char *value)
{
	char line[2 * LONGEST];
	int length = kind == '+'
		? snprintf(line, sizeof line, "+%s %s\n", name, value)
		: snprintf(line, sizeof line, "-%s\n", name);

	if (length < 0 || (size_t)length >= sizeof line)
		die("a record");
	if (write_all(log_fd, line, (size_t)length) < 0 || fsync(log_fd) < 0)
		die("log");
}

static unsigned replay(FILE *file)
{
	char line[2 * LONGEST];
	unsigned records = 0;

	while (fgets(line, sizeof line, file)) {
		char *end = strchr(line, '\n');
		char *space;

		if (!end)
			break; /* cut off by a crash */
		*end = '\0';
		switch (line[0]) {
		case '+':
			space = strchr(line, ' ');
			if (!space)
				goto damaged;
			*space = '\0';
			if (table_put(&table, line + 1, space + 1) < 0)
				die("memory");
			break;
		case '-':
			table_delete(&table, line + 1);
			break;
		default:
			goto damaged;
		}
		records++;
	}
	return records;

damaged:
	fprintf(stderr, "record %u is damaged\n", records + 1);
	exit(2);
}

static void open_log(const char *path)
{
	FILE *file = fopen(path, "r");

	if (file) {
		unsigned records = replay(file);
		if (records > 0)
			printf("%u records, %u entries\n", records, table.entries);
		fclose(file);
	} else if (errno != ENOENT) {
		die(path);
	}
	log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
	if (log_fd < 0)
		die(path);
}

static enum method method_of(const char *word)
{
	static const struct {
		const char *word;
		enum method method;
	} methods[] = {
		{ "GET ", GET },
		{ "PUT ", PUT },
		{ "DELETE ", DELETE },
		{ "POST ", POST },
	};

	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		if (strncmp(word, methods[i].word, strlen(methods[i].word)) == 0)
			return methods[i].method;
	}
	return UNKNOWN;
}

static void compare_and_set(struct answer *answer, const char *name, const char *body)
{
	char *old = FIELD(body, "old");
	char *new = FIELD(body, "new");
	const char *now = table_get(&table, name);

	if (!old || !new) {
		answer->status = 400;
		refused++;
	} else if (strcmp(old, now ? now : "") != 0) {
		answer->status = 409;
	} else {
		record('+', name, new);
		if (table_put(&table, name, new) < 0)
			die("memory");
		answer->status = 204;
	}
}

static void handle(struct answer *answer, enum method method, char *path, const char *body)
{
	char *name = path + 1;
	char *cas = strstr(path, "/cas");
	const char *value;

	if (strcmp(path, "/health") == 0) {
		answer->status = 200;
		snprintf(answer->body, sizeof answer->body, "%lu served, %lu refused\n", served, refused);
		return;
	}
	switch (method) {
	case GET:
		value = table_get(&table, name);
		answer->status = value ? 200 : 404;
		if (value)
			snprintf(answer->body, sizeof answer->body, "%s", value);
		break;
	case PUT:
		record('+', name, body);
		if (table_put(&table, name, body) < 0)
			die("memory");
		answer->status = 204;
		break;
	case DELETE:
		if (!*name) {
			table_clear(&table);
			answer->status = 204;
		} else if (table_get(&table, name)) {
			record('-', name, NULL);
			table_delete(&table, name);
			answer->status = 204;
		} else {
			answer->status = 404;
		}
		break;
	case POST:
		if (cas) {
			*cas = '\0';
			compare_and_set(answer, name, body);
			break;
		}
		/* fallthrough */
	case UNKNOWN:
	default:
		answer->status = 405;
		refused++;
	}
}

static int reply(int fd, const struct answer *answer)
{
	char head[256];
	size_t length = strlen(answer->body);
	int written = snprintf(head, sizeof head,
			       "HTTP/1.1 %d %s\r\n"
			       "Content-Length: %zu\r\n"
			       "\r\n",
			       answer->status,
			       reason(answer->status),
			       length);

	return write_all(fd, head, (size_t)written) < 0
		|| write_all(fd, answer->body, length) < 0
		? -1
		: 0;
}

/* Answers the requests that are there as a whole. Gives -1 if the connection is to be closed. */
static int serve(struct client *client)
{
	for (;;) {
		struct answer answer = { .status = 500 };
		char *end = strstr(client->bytes, "\r\n\r\n");
		char *length_at, *path, *space, *body, saved;
		size_t length = 0, all;

		if (!end)
			return client->length == LONGEST ? -1 : 0;
		length_at = strcasestr(client->bytes, "content-length:");
		if (length_at && length_at < end)
			length = strtoul(length_at + 15, NULL, 10);
		body = end + 4;
		all = (size_t)(body - client->bytes) + length;
		if (all > LONGEST) {
			answer.status = 413;
			reply(client->fd, &answer);
			return -1;
		}
		if (client->length < all)
			return 0;
		path = strchr(client->bytes, ' ');
		space = path ? strchr(path + 1, ' ') : NULL;
		if (!space || path[1] != '/') {
			answer.status = 400;
			reply(client->fd, &answer);
			return -1;
		}
		*space = '\0';
		saved = body[length];
		body[length] = '\0';
		handle(&answer, method_of(client->bytes), path + 1, body);
		body[length] = saved;
		served++;
		if (reply(client->fd, &answer) < 0)
			return -1;
		memmove(client->bytes, client->bytes + all, client->length - all + 1);
		client->length -= all;
	}
}

static void drop(struct client *client)
{
	close(client->fd);
	memset(client, 0, sizeof *client);
	client->fd = -1;
}

static void take(int fd)
{
	struct client *client = NULL;

	for (int i = 0; i < CLIENTS && !client; i++)
		if (clients[i].fd < 0)
			client = &clients[i];
	if (!client) {
		close(fd);
		refused++;
		return;
	}
	client->fd = fd;
}

static void receive(struct client *client)
{
	ssize_t got = read(client->fd, client->bytes + client->length, LONGEST - client->length);

	if (got <= 0) {
		drop(client);
		return;
	}
	client->length += (size_t)got;
	client->bytes[client->length] = '\0';
	if (serve(client) < 0)
		drop(client);
}

static int listen_on(unsigned short port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0
	    || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0
	    || bind(fd, (struct sockaddr *)&address, sizeof address) < 0
	    || listen(fd, 16) < 0)
		die("listen");
	return fd;
}

static int usage(const char *name)
{
	fprintf(stderr,
		"%s LOG [PORT]\n",
		name);
	return 64;
}

int main(int argc, char **argv)
{
	struct pollfd polled[CLIENTS + 1];
	int listener;

	if (argc < 2)
		return usage(argv[0]);
	for (int i = 0; i < CLIENTS; i++)
		clients[i].fd = -1;
	open_log(argv[1]);
	listener = listen_on(argc > 2 ? (unsigned short)atoi(argv[2]) : 8080);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		polled[CLIENTS] = (struct pollfd){ .fd = listener, .events = POLLIN };
		for (int i = 0; i < CLIENTS; i++)
			polled[i] = (struct pollfd){ .fd = clients[i].fd, .events = POLLIN };
		if (poll(polled, CLIENTS + 1, -1) < 0 && errno != EINTR)
			die("poll");
		for (int i = 0; i < CLIENTS; i++)
			if (polled[i].revents)
				receive(&clients[i]);
		if (polled[CLIENTS].revents) {
			int fd = accept(listener, NULL, NULL);
			if (fd >= 0)
				take(fd);
		}
	}
}
