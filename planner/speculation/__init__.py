"""Which draft, with how many tokens, and is it worth it: acceptance, step times, speedup, compatibility."""
