/* A library; RELOCATED: with an address in its text, which the dynamic linker has to write there. */
static int own(int n)
{
	if (n < 0)
		return NUMBER - n;
	return NUMBER + n;
}

#ifdef RELOCATED
int value = 1000;
int *address_in_text(void);
__asm__(".text\n"
	".type address_in_text, @function\n"
	"address_in_text:\n"
	"	movabs $value, %rax\n"
	"	ret\n"
	".size address_in_text, . - address_in_text\n");
#endif

int function(int n)
{
#ifdef RELOCATED
	return own(n) + *address_in_text();
#else
	return own(n);
#endif
}
