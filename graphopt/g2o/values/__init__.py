"""Values of the drop-in: poses, rotations, motions, cameras; objects with g2o's methods."""
