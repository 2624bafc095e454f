"""The pages for browsers, one module each.

They show the same figures as the JSON; without JavaScript, those at the time of loading. The script of the pages
replaces the sections that change.

A page consists of sections by their ids. All data from users is escaped by `markup`.
"""
