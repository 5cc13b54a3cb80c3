"""Reports: blocks, their page and their charts."""
