"""Random views of images, drawn anew each time an image is seen."""
