#include "left/a.h"
