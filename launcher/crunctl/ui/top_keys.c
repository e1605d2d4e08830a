/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_keys.h"

#include <stdlib.h>
#include <string.h>

static int key_of_letter(char letter)
{
    static const struct {
        char letter;
        int key;
    } keys[] = { { 'A', TOP_KEY_UP },  { 'B', TOP_KEY_DOWN }, { 'H', TOP_KEY_HOME },
                 { 'F', TOP_KEY_END }, { 'D', TOP_KEY_ESC }, /* left goes back, */
                 { 'C', '\r' },                              /* and right into it */
                 { 'M', '\r' } };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].letter == letter)
            return keys[i].key;
    return TOP_KEY_OTHER;
}

/* Of a sequence that ends with "~". */
static int key_of_number(int number)
{
    static const int keys[] = {
        [1] = TOP_KEY_HOME,      [4] = TOP_KEY_END,  [5] = TOP_KEY_PAGE_UP,
        [6] = TOP_KEY_PAGE_DOWN, [7] = TOP_KEY_HOME, [8] = TOP_KEY_END
    };
    int key = number > 0 && number <= 8 ? keys[number] : 0;

    return key ? key : TOP_KEY_OTHER;
}

int top_key_next(const char *typed, size_t size, bool is_all, size_t *used)
{
    size_t i = 2;

    *used = 1;
    if (size == 0 || *typed != TOP_KEY_ESC)
        return size ? (unsigned char)*typed : 0;
    if (size == 1)
        return is_all ? TOP_KEY_ESC : 0;
    if (typed[1] != '[' && typed[1] != 'O')
        return TOP_KEY_ESC;
    while (i < size && (unsigned char)typed[i] < '@') /* parameters */
        i++;
    *used = i < size ? i + 1 : size;
    if (i == size)
        return is_all ? TOP_KEY_OTHER : 0;
    return typed[i] == '~' ? key_of_number(atoi(typed + 2)) : key_of_letter(typed[i]);
}
