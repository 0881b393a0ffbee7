"""Random views of images: what is drawn anew each time an image is seen."""
