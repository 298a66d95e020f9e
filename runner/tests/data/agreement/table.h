/* A table of names and values, with chains. */
#ifndef TABLE_H
#define TABLE_H

#include <stdlib.h>
#include <string.h>

#define BUCKETS 16

struct entry {
	struct entry *next;
	char *name;
	char *value;
};

struct table {
	struct entry *buckets[BUCKETS];
	unsigned entries;
};

static inline unsigned bucket_of(const char *name)
{
	unsigned hash = 5381;

	while (*name)
		hash = hash * 33 + (unsigned char)*name++;
	return hash % BUCKETS;
}

static inline struct entry **table_find(struct table *table, const char *name)
{
	struct entry **at = &table->buckets[bucket_of(name)];

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

static inline const char *table_get(struct table *table, const char *name)
{
	struct entry *entry = *table_find(table, name);

	return entry ? entry->value : NULL;
}

static inline int table_put(struct table *table, const char *name, const char *value)
{
	struct entry **at = table_find(table, name);

	if (!*at) {
		*at = calloc(1, sizeof **at);
		if (!*at)
			return -1;
		(*at)->name = strdup(name);
		table->entries++;
	}
	free((*at)->value);
	(*at)->value = strdup(value);
	return (*at)->name && (*at)->value ? 0 : -1;
}

static inline int table_delete(struct table *table, const char *name)
{
	struct entry **at = table_find(table, name);
	struct entry *gone = *at;

	if (!gone)
		return 0;
	*at = gone->next;
	free(gone->name);
	free(gone->value);
	free(gone);
	table->entries--;
	return 1;
}

/* No client asks for it. */
static inline void table_clear(struct table *table)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		while (table->buckets[i]) {
			char *name = table->buckets[i]->name;
			table_delete(table, name);
		}
	}
}

#endif
