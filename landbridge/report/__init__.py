"""Reports as one HTML file each: nothing is fetched, nothing has to be installed to read them."""
