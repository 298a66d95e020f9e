#ifndef TABLE_H
#define TABLE_H

static const int table[] = {1, 2, 3, 5, 7, 11};

static int table_get(int index)
{
    if (index < 0 || index >= 6)
        return 0;
    return table[index];
}

#endif
