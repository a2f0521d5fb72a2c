"""The schema: `migrate` applies it, `files` reads its migrations, `state` tells what is there, `adoption` takes over a
table that was there before, `patience` takes strong locks without holding up producers.
"""
