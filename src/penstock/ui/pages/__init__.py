"""The pages for browsers, one module each. They show the same figures as the JSON, without JavaScript as of the moment
when they were loaded; the script of the pages replaces the sections that change.

A page is made of sections by their ids. Whatever comes from users is escaped by `markup`.
"""
